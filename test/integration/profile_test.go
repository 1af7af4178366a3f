package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// TestProfile: the profile for the compiler names the function that decides, below both stores.
func TestProfile(t *testing.T) {
	// A profile has a sample for each 10 ms of processor time. On a busy machine the
	// program gets too little of it in a second.
	var text string
	for seconds := 1; seconds <= 8; seconds *= 2 {
		text = profile(t, seconds)
		if strings.Contains(text, "service.(*Service).Decide") && strings.Contains(text, "memory.(*Store).Apply") && strings.Contains(text, "redis.(*Store).Apply") {
			return
		}
	}
	t.Errorf("the profile lacks Decide or Apply of a store:\n%s", text)
}

// profile returns the functions in a profile of each workload for a while.
func profile(t *testing.T, seconds int) string {
	t.Helper()
	testenv.Binary(t, "redis-server")
	file := filepath.Join(t.TempDir(), "default.pgo")
	record := exec.CommandContext(t.Context(), "../../scripts/profile.sh", file, fmt.Sprint(seconds))
	record.Env = append(record.Environ(), "RLS="+program, fmt.Sprintf("PROFILE_PORTS=%d %d %d %d",
		testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t), testenv.FreePort(t)))
	if out, err := record.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-symbolize=none", "-top", "-nodecount=10000", "-nodefraction=0", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
