package process

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/settings"
)

const patience = 20 * time.Second

// A rotated password counts for new connections within two seconds after the file
// has it. Connections that are open go on through the rotation.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		old, renewed string   // as the file has them
		admin        string   // the password of the default user before the rotation
		rotate       []any    // the command that makes the server take the new one only
		args         []string // of the server
	}{
		"requirepass": {"s3cret-1", "s3cret-2\n", "s3cret-1", []any{"CONFIG", "SET", "requirepass", "s3cret-2"}, []string{"--requirepass", "s3cret-1"}},
		"user": {
			"rls:s3cret-1\n", "rls:s3cret-2", "", []any{"ACL", "SETUSER", "rls", "resetpass", ">s3cret-2"},
			[]string{"--user", "rls", "on", ">s3cret-1", "~*", "&*", "+@all"},
		},
		"another user": {
			"rls:s3cret-1", "rls2:a:s3cret:with:colons", "", []any{"ACL", "SETUSER", "rls2", "on", ">a:s3cret:with:colons", "~*", "&*", "+@all"},
			[]string{"--user", "rls", "on", ">s3cret-1", "~*", "&*", "+@all"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, tt.args...)
			file := filepath.Join(t.TempDir(), "auth")
			write := func(text string) {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.old)
			s := &settings.Settings{}
			s.Backend.BackendType = inRedis
			s.Redis.RedisServer = settings.RedisServer{Options: redis.Options{Type: "SINGLE", SocketType: "tcp", URL: server.Addr, PoolSize: 4}, Timeout: time.Second, AuthFile: file}
			log := &testenv.Log{}
			store, watch := storeOf(t, s, slog.New(slog.NewTextHandler(log, nil)))
			run(t, watch)
			decide := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				now := time.Now().UnixMicro()
				b := backends.Batch{Replies: make([]backends.Reply, 1), Ops: []backends.Op{{
					Limit: &backends.Limit{Den: 1}, Key: "a", Now: now, Until: now + time.Hour.Microseconds(), Times: 1, By: backends.Amount{Whole: 1}, Max: backends.NoMax,
				}}}
				return store.Apply(ctx, &b)
			}
			if err := decide(); err != nil {
				t.Fatal(err)
			}

			admin := goredis.NewClient(&goredis.Options{Addr: server.Addr, Password: tt.admin, Protocol: 2})
			defer admin.Close()
			if err := admin.Do(t.Context(), tt.rotate...).Err(); err != nil {
				t.Fatal(err)
			}
			if err := decide(); err != nil {
				t.Errorf("over a connection that was open before the rotation: %v", err)
			}
			write(tt.renewed)
			written := time.Now()
			if name == "another user" {
				if err := admin.Do(t.Context(), "ACL", "DELUSER", "rls").Err(); err != nil {
					t.Fatal(err)
				}
			} else if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				t.Fatal(err)
			}
			testenv.Within(t, 2*time.Second, func() bool { return decide() == nil }, "the new password counts")
			t.Logf("decisions went on %v after the file had the new password", time.Since(written))
			if len(log.With("changed files are in force")) != 1 || len(log.With("REDIS_AUTH_FILE")) != 1 {
				t.Errorf("want one line that names the setting:\n%s", log)
			}
			write("")
			testenv.Eventually(t, patience, func() bool { return len(log.With("refused")) == 1 }, "an empty file is refused")
			if got := log.With("refused")[0]; !strings.Contains(got, file) || !strings.Contains(got, "no password") {
				t.Errorf("the log does not say why: %s", got)
			}
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("the log has a password:\n%s", log)
			}
		})
	}
}
