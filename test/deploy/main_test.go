// Package deploy_test renders what is in deploy/ with kustomize and Helm,
// holds it to the schemas of Kubernetes and to what its parts promise each
// other, runs the pods' commands as a kubelet would, and the dashboard's and
// the alerts' queries on metrics of the program.
package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/rls/internal/testenv"
)

// root is the repository's.
const root = "../.."

// binaryDir has the program by both of its names.
var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "rls-deploy-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(binaryDir)
	os.Exit(code)
}

// binaries builds the program.
var binaries = sync.OnceValue(func() error {
	if _, err := testenv.BuildService(binaryDir); err != nil {
		return err
	}
	return os.Symlink("rls", filepath.Join(binaryDir, "ratelimit"))
})

// manifestTools builds helm, promtool and kubectl-validate, where `make test`
// has not done so.
var manifestTools = sync.OnceValue(func() error {
	_, err := run("", "make", "-s", "-C", root, "manifest-tools")
	return err
})

func tool(t *testing.T, name string) string {
	t.Helper()
	if err := manifestTools(); err != nil {
		t.Fatal(err)
	}
	return testenv.Binary(t, name)
}

var kustomize = sync.OnceValues(func() (string, error) {
	path, err := run(root, "go", "tool", "-modfile=tools/go.mod", "-n", "kustomize")
	return strings.TrimSpace(path), err
})

// run returns what a command prints.
func run(dir, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
