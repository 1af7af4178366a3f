package process

import (
	"log/slog"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/settings"
)

// TestStacksAreDrawn: ADR 2 shows the stacks that serve builds, and no other.
func TestStacksAreDrawn(t *testing.T) {
	text, err := os.ReadFile("../../docs/adr/0002-distant-cells.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```\n")
	drawn, _, _ := strings.Cut(rest, "```")

	var built strings.Builder
	for _, set := range []func(*settings.Settings){
		func(s *settings.Settings) { s.Backend.BackendType = "redis" },
		func(s *settings.Settings) { s.Backend.BackendType, s.Redis.Persecond = "redis", true },
		func(s *settings.Settings) { s.Backend.BackendType = "memcache" },
		func(s *settings.Settings) { s.Backend.BackendType, s.Memory.MaxKeys = "memory", 1 },
	} {
		s := &settings.Settings{}
		server := settings.RedisServer{Options: redis.Options{SocketType: "tcp", Type: "SINGLE", URL: "127.0.0.1:1", PoolSize: 1}, Timeout: time.Second}
		s.Redis.RedisServer, s.RedisPerSecond = server, server
		s.Memcache = settings.Memcache{Options: memcached.Options{Servers: []string{"127.0.0.1:1"}, Timeout: time.Second}}
		s.Backend.LocalCacheSizeInBytes = 1 << 20
		s.Tracing.Enabled, s.Tracing.Protocol = true, "http"
		set(s)
		store, _ := storeOf(t, s, slog.New(slog.DiscardHandler))
		built.WriteString(layers(reflect.ValueOf(store)) + "\n")
	}
	if built.String() != drawn {
		t.Errorf("serve builds\n%sand ADR 2 draws\n%s", built.String(), drawn)
	}
}

// layers names a store by its package, a decorator of the stack by its type, and the stores that it wraps.
func layers(v reflect.Value) string {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	var below []string
	for i := range v.NumField() {
		switch f := v.Field(i); f.Type() {
		case reflect.TypeFor[backends.Store]():
			if !f.IsNil() {
				below = append(below, layers(f))
			}
		case reflect.TypeFor[[2]backends.Store]():
			below = append(below, layers(f.Index(0)), layers(f.Index(1)))
		}
	}
	name := path.Base(v.Type().PkgPath())
	if name == "stack" {
		name = v.Type().Name()
	}
	switch len(below) {
	case 0:
		return name
	case 1:
		return name + " ▶ " + below[0]
	}
	return name + "(" + strings.Join(below, ", ") + ")"
}

// TestEveryBackendTypeHasItsRow: the table has the values that the setting takes.
func TestEveryBackendTypeHasItsRow(t *testing.T) {
	field, _ := reflect.TypeFor[settings.Backend]().FieldByName("BackendType")
	names := strings.Split(field.Tag.Get("oneof"), ",")
	for _, name := range names {
		if backendTypes[name].open == nil {
			t.Errorf("BACKEND_TYPE=%s opens nothing", name)
		}
	}
	if len(names) != len(backendTypes) {
		t.Errorf("the setting takes %q, the table has %d", names, len(backendTypes))
	}
}
