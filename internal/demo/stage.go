package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"text/template"
	"time"
)

var (
	//go:embed rules.yaml
	rules []byte
	//go:embed envoy.yaml
	envoyText   string
	envoyConfig = template.Must(template.New("envoy.yaml").Parse(envoyText))
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 5 * time.Second
)

// ports are the loopback ports of everybody on the stage.
type ports struct {
	Upstream, GRPC, HTTP, Front, Admin int
}

// stage is the upstream, the service and Envoy, running.
type stage struct {
	ports    ports
	dir      string
	upstream *http.Server

	processes context.Context // its end asks the processes to end
	leave     context.CancelFunc
	running   int
	ended     chan *exec.Cmd
}

// startStage starts everybody and returns when Envoy is ready.
func startStage(ctx context.Context, rls, envoy string) (_ *stage, err error) {
	s := &stage{ended: make(chan *exec.Cmd, 2)}
	s.processes, s.leave = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "rls-demo-"); err != nil {
		return nil, err
	}
	for _, port := range []*int{&s.ports.Upstream, &s.ports.GRPC, &s.ports.HTTP, &s.ports.Front, &s.ports.Admin} {
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err = s.startUpstream(); err != nil {
		return nil, fmt.Errorf("start the upstream: %w", err)
	}
	if err = s.startService(rls); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	if err = s.answers(ctx, s.ports.HTTP, "/healthcheck"); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	if err = s.startEnvoy(envoy); err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	if err = s.answers(ctx, s.ports.Admin, "/ready"); err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	return s, nil
}

func (s *stage) startUpstream() error {
	listener, err := net.Listen("tcp", loopback(s.ports.Upstream))
	if err != nil {
		return err
	}
	s.upstream = &http.Server{
		ReadHeaderTimeout: startTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintln(w, "hello from the upstream")
		}),
	}
	go func() { _ = s.upstream.Serve(listener) }() // until stop closes it
	return nil
}

func (s *stage) startService(rls string) error {
	folder := filepath.Join(s.dir, "rules")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "demo.yaml"), rules, 0o600); err != nil {
		return err
	}
	return s.start([]string{
		"BACKEND_TYPE=memory",
		"RUNTIME_ROOT=" + s.dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", s.ports.HTTP),
		"GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", s.ports.GRPC),
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"USE_STATSD=false", "LOG_LEVEL=warn", "DRAIN_PERIOD=0s",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_IETF_HEADERS_ENABLED=true",
		"LIMIT_RETRY_AFTER_HEADER_ENABLED=true", "LIMIT_PROBLEM_BODY_ENABLED=true",
	}, rls, "serve")
}

func (s *stage) startEnvoy(envoy string) error {
	path := filepath.Join(s.dir, "envoy.yaml")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(envoyConfig.Execute(file, s.ports), file.Close()); err != nil {
		return err
	}
	return s.start(nil, envoy, "--config-path", path,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
}

// start starts a process with additions to the environment.
func (s *stage) start(env []string, path string, args ...string) error {
	cmd := exec.CommandContext(s.processes, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running++
	go func() {
		_ = cmd.Wait() // told by its state
		s.ended <- cmd
	}()
	return nil
}

// answers waits until a path is answered 200 OK.
func (s *stage) answers(ctx context.Context, port int, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	url := "http://" + loopback(port) + path
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err != nil {
			return err
		} else if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-pause.C:
		case cmd := <-s.ended:
			s.running--
			return endedError(cmd)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, ctx.Err())
		}
	}
}

// wait returns when ctx ends or, with an error, a process does.
func (s *stage) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case cmd := <-s.ended:
		s.running--
		if ctx.Err() != nil { // Ctrl-C reaches the processes too
			return nil
		}
		return endedError(cmd)
	}
}

func endedError(cmd *exec.Cmd) error {
	return fmt.Errorf("%s ended: %v", cmd.Path, cmd.ProcessState)
}

// stop ends everybody and returns when they are gone.
func (s *stage) stop() {
	s.leave()
	for ; s.running > 0; s.running-- {
		<-s.ended
	}
	if s.upstream != nil {
		_ = s.upstream.Close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// freePort returns a loopback port that nobody has just now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", loopback(0))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
