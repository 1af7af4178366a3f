package settings_test

import (
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/settings"
)

func TestMisspelt(t *testing.T) {
	var s settings.Settings
	parser, err := kong.New(&s, settings.NewDecoder().Options("memory")...)
	if err != nil {
		t.Fatal(err)
	}
	got := settings.Misspelt([]string{
		"RUNTIME_SUBDIRECTRY=x", "REDIS_UR=localhost:6379", "GRPC_SERVER_TLS_CRET=x", "LIMIT_RESPONSE_HEADER_ENABLED=1",
		// Right.
		"REDIS_URL=localhost:6379", "PORT=8080", "REDIS_AUTH=",
		// Of a Service named redis, and of others.
		"REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=10.0.0.1", "REDIS_PORT_6379_TCP_PROTO=tcp",
		"HOSTNAME=pod", "PATH=/bin", "HOME=/", "LANG=C", "LOGNAME=x", "GOMEMLIMIT=1GiB", "MEMORY_LIMIT=1",
	}, parser.Model)
	want := []settings.Misspelling{
		{"GRPC_SERVER_TLS_CRET", "GRPC_SERVER_TLS_CERT"},
		{"LIMIT_RESPONSE_HEADER_ENABLED", "LIMIT_RESPONSE_HEADERS_ENABLED"},
		{"REDIS_UR", "REDIS_URL"},
		{"RUNTIME_SUBDIRECTRY", "RUNTIME_SUBDIRECTORY"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
