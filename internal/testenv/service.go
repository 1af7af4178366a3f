package testenv

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// BuildService builds cmd/rls and returns its path, dir/rls.
func BuildService(dir string) (string, error) {
	path := filepath.Join(dir, "rls")
	if out, err := exec.Command("go", "build", "-o", path, "example.org/rls/cmd/rls").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/rls: %w\n%s", err, out)
	}
	return path, nil
}
