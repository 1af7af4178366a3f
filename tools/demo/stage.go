package main

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"text/template"

	"example.org/rls/tools/launch"
)

var (
	//go:embed rules.yaml shop.yaml
	rules embed.FS
	//go:embed envoy.yaml
	envoyText   string
	envoyConfig = template.Must(template.New("envoy.yaml").Parse(envoyText))
)

// ports are the ports of the upstream, the service with its page, and Envoy, on the
// loopback.
type ports struct {
	Upstream, GRPC, HTTP, Page, Front, Shop, Admin int
}

// stage is the upstream, the service and Envoy, running.
type stage struct {
	ports    ports
	token    string // for the page
	dir      string
	upstream *http.Server
	programs *launch.Group
}

// startStage starts all three and returns when Envoy is ready.
func startStage(ctx context.Context, rls, envoy string) (_ *stage, err error) {
	s := &stage{programs: launch.NewGroup(ctx)}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "rls-demo-"); err != nil {
		return nil, err
	}
	p := &s.ports
	if err = launch.FreePorts(&p.Upstream, &p.GRPC, &p.HTTP, &p.Page, &p.Front, &p.Shop, &p.Admin); err != nil {
		return nil, err
	}
	if err = s.startUpstream(); err != nil {
		return nil, fmt.Errorf("start the upstream: %w", err)
	}
	if err = s.startService(rls); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	if err = s.startEnvoy(envoy); err != nil {
		return nil, fmt.Errorf("start Envoy: %w", err)
	}
	return s, nil
}

func (s *stage) startUpstream() error {
	listener, err := net.Listen("tcp", launch.Loopback(s.ports.Upstream))
	if err != nil {
		return err
	}
	s.upstream = &http.Server{
		ReadHeaderTimeout: launch.StartTimeout,
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
	if err := os.CopyFS(folder, rules); err != nil {
		return err
	}
	s.token = rand.Text()
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte("demo write "+s.token+"\n"), 0o600); err != nil {
		return err
	}
	return s.start(launch.Loopback(s.ports.HTTP)+"/healthcheck", []string{
		"BACKEND_TYPE=memory",
		"RUNTIME_ROOT=" + s.dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", s.ports.HTTP),
		"GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", s.ports.GRPC),
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"ADMIN_TOKEN_FILE=" + tokens, fmt.Sprintf("ADMIN_PORT=%d", s.ports.Page),
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
	return s.start(launch.Loopback(s.ports.Admin)+"/ready", nil, envoy, "--config-path", path,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
}

// start starts a process with env added to the environment. It returns when the
// process answers at the address and path of ready.
func (s *stage) start(ready string, env []string, path string, args ...string) error {
	cmd := s.programs.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return s.programs.Start(cmd, s.programs.Answers, "http://"+ready)
}

// wait returns nil when ctx ends, and an error when a process ends before.
func (s *stage) wait(ctx context.Context) error {
	<-s.programs.Context.Done()
	if ctx.Err() != nil { // Ctrl-C reaches the processes too
		return nil
	}
	return context.Cause(s.programs.Context)
}

// stop ends all three and returns when they have ended.
func (s *stage) stop() {
	s.programs.Stop()
	if s.upstream != nil {
		_ = s.upstream.Close()
	}
	_ = os.RemoveAll(s.dir)
}
