//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/rls/internal/testenv"
)

const (
	patience = 20 * time.Second

	// containerRoot is a variable of the environment: with it, this test binary
	// becomes a container whose root is the folder that it names.
	containerRoot = "RLS_TEST_CONTAINER_ROOT"
	nobody        = 65534
)

// becomeContainer replaces the process by /bin/ratelimit, as a container engine does
// for a pod with a read-only root, runAsUser 65534, no capabilities and no new
// privileges. The process must have a mount namespace of its own.
func becomeContainer(root string) {
	runtime.LockOSThread() // capabilities belong to a thread
	steps := []struct {
		what string
		do   func() error
	}{
		{"keep mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"bind the root", func() error { return unix.Mount(root, root, "", unix.MS_BIND, "") }},
		{"make it read-only", func() error {
			return unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
		}},
		{"enter it", func() error { return errors.Join(unix.Chroot(root), unix.Chdir("/")) }},
		{"be unable to write, as root", func() error {
			err := os.WriteFile("/bin/rls.new", nil, 0o600)
			if errors.Is(err, unix.EROFS) {
				return nil
			}
			return errors.Join(errors.New("a write is not refused"), err)
		}},
		{"drop capabilities", func() error {
			for c := range uintptr(unix.CAP_LAST_CAP + 1) {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
					return err
				}
			}
			return nil
		}},
		{"become nobody", func() error {
			return errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
		}},
		{"get no new privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"end with the test", func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }},
		{"forget the test", func() error { return os.Unsetenv(containerRoot) }},
		{"start", func() error { return syscall.Exec("/bin/ratelimit", []string{"/bin/ratelimit"}, os.Environ()) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			fmt.Fprintf(os.Stderr, "container: %s: %v\n", step.what, err)
			os.Exit(70)
		}
	}
}

// istioRules are the rules of Istio's sample.
const istioRules = `domain: ratelimit
descriptors:
  - key: PATH
    value: "/productpage"
    rate_limit:
      unit: minute
      requests_per_unit: 1
  - key: PATH
    rate_limit:
      unit: minute
      requests_per_unit: 100
`

func configMap(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "..2026_11_21"), 0o755),
		os.WriteFile(filepath.Join(dir, "..2026_11_21", "config.yaml"), []byte(istioRules), 0o644),
		os.Symlink("..2026_11_21", filepath.Join(dir, "..data")),
		os.Symlink("..data/config.yaml", filepath.Join(dir, "config.yaml")),
	); err != nil {
		t.Fatal(err)
	}
}

// TestContainer: the image runs with the environment of Istio's sample, in place of
// the image of envoyproxy/ratelimit.
func TestContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root can mount and become another user: run this test as root")
	}
	redis := testenv.Redis(t)
	root := unpack(t, images(t)[runtime.GOARCH])
	// Only their owner can enter temporary folders; the container is another user.
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	configMap(t, filepath.Join(root, "data/ratelimit/config"))
	if err := os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost\n"), 0o644); err != nil { // engines mount one
		t.Fatal(err)
	}
	ports := map[string]int{"PORT": testenv.FreePort(t), "GRPC_PORT": testenv.FreePort(t), "DEBUG_PORT": testenv.FreePort(t)}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{
		"LOG_LEVEL=debug", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr, "USE_STATSD=false",
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		"HOST=::", "GRPC_HOST=::",
		// Istio keeps the default ports, which may be in use on this machine.
		fmt.Sprint("PORT=", ports["PORT"]), fmt.Sprint("GRPC_PORT=", ports["GRPC_PORT"]), fmt.Sprint("DEBUG_PORT=", ports["DEBUG_PORT"]),
		containerRoot + "=" + root,
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	runtime.LockOSThread() // never unlocked: the container ends with this thread (PDEATHSIG)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a process in a mount namespace of its own, which this machine must permit: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has its result
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if the process has ended
		<-ended
		if t.Failed() {
			t.Logf("log of the container:\n%s", &log)
		}
	})
	client := http.Client{Timeout: patience}
	testenv.Eventually(t, patience, func() bool {
		select {
		case <-ended:
			t.Fatalf("the container ended: %v", cmd.ProcessState)
		default:
		}
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthcheck", ports["PORT"]))
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	}, "the container is healthy")

	status := string(read(t, fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)))
	for _, want := range []string{`Uid:(\s65534){4}`, `Gid:(\s65534){4}`, `Groups:\s*`, `CapPrm:\s0+`, `CapEff:\s0+`, `CapBnd:\s0+`, `NoNewPrivs:\s1`, `Name:\sratelimit`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(status) {
			t.Errorf("the process is not %s:\n%s", want, status)
		}
	}

	// The check of the image's configuration, in the same root and environment.
	check := exec.Command("/bin/rls", "healthcheck")
	check.Env, check.Dir = cmd.Env, "/"
	check.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := check.CombinedOutput(); err != nil || string(out) != "SERVING\n" {
		t.Errorf("healthcheck: %v: %s", err, out)
	}

	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///127.0.0.1:%d", ports["GRPC_PORT"]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		resp, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{
			Domain: "ratelimit",
			Descriptors: []*rlcommon.RateLimitDescriptor{{
				Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "PATH", Value: "/productpage"}},
			}},
		})
		if err != nil || resp.OverallCode != want {
			t.Errorf("got %v, %v, want %v", resp.GetOverallCode(), err, want)
		}
	}
	keys, err := exec.Command("redis-cli", "-u", "redis://"+redis.Addr, "DBSIZE").Output()
	if err != nil || strings.TrimSpace(string(keys)) == "0" {
		t.Errorf("Redis has %s keys, %v: started as ratelimit, the program counts there", keys, err)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the container does not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
