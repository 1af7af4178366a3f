package integration

import (
	"os"
	"path/filepath"
	"testing"

	"example.org/rls/internal/testenv"
)

// TestPasswordRotates: the password of Redis changes, and so does REDIS_AUTH_FILE.
// The process goes on with the counters from before, without a restart.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t, "--requirepass", "old")
	file := filepath.Join(t.TempDir(), "auth")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	s := serve(t, plenty, append(redisAt(server.Addr), "REDIS_AUTH_FILE="+file)...)
	s.want("d", desc("user", "x"), ok, 999_999)
	o := operate(t, server.Addr, "old")
	o.does("PING") // opens the operator's connection, which stays
	for i, password := range []string{"new", "newer"} {
		o.rotate(password)
		testenv.Eventually(t, patience, func() bool {
			_, err := s.try(patience, "d", desc("user", "refused"))
			return err != nil
		}, "Redis refuses the old password")
		write(password)
		testenv.Eventually(t, patience, func() bool {
			_, err := s.try(patience, "d", desc("user", "refused"))
			return err == nil
		}, "the new password is in use")
		s.want("d", desc("user", "x"), ok, uint32(999_998-i))
	}
}
