// Package deploy_test renders the manifests in deploy/ with kustomize and Helm. It
// validates them against the schemas of Kubernetes, checks that their names, ports
// and selectors fit together, runs the pods' commands as a kubelet would, and runs
// the queries of the dashboard and the alerts on metrics of the program.
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

// root is the repository's folder.
const root = "../.."

// binaryDir is the folder with the program under both of its names.
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

// manifestTools builds helm, promtool and kubectl-validate unless they are built.
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
	path, err := run(root, "go", "tool", "-modfile=tools/dev.mod", "-n", "kustomize")
	return strings.TrimSpace(path), err
})

// run returns the standard output of a command. The error has both outputs.
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
