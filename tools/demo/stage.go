package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
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
	dir      string // for the file with it
	upstream *http.Server
	programs programs
	out      io.Writer
}

// folder is where the rules and envoy.yaml are.
func (d *demo) folder() string {
	if d.recipe == "" {
		return filepath.Join(d.root, "tools/demo")
	}
	return filepath.Join(d.root, "deploy/recipes", d.recipe)
}

// start starts all three, writes to out what it waits for, and returns when Envoy is
// ready. Envoy listens on the port front unless that is 0 or taken.
func (d *demo) start(ctx context.Context, front int, out io.Writer) (_ *stage, err error) {
	s := &stage{out: out}
	s.programs.ctx, s.programs.cancel = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "rls-demo-"); err != nil {
		return nil, err
	}
	p := &s.ports
	p.Front = front
	if err = freePorts(&p.Front, &p.Upstream, &p.GRPC, &p.HTTP, &p.Page, &p.Shop, &p.Admin); err != nil {
		return nil, err
	}
	if err = s.startUpstream(); err != nil {
		return nil, fmt.Errorf("start the upstream: %w", err)
	}
	if err = s.startService(d); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	if err = s.startEnvoy(d); err != nil {
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
		Handler:           http.HandlerFunc(answer),
	}
	go func() { _ = s.upstream.Serve(listener) }() // until stop closes it
	return nil
}

// answer is the upstream: a page, and a language model that streams an answer of 1,200 tokens.
func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/chat/completions" {
		_, _ = fmt.Fprintln(w, "hello from the upstream")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{
		`{"choices":[{"delta":{"content":"hello"}}],"usage":null}`,
		`{"choices":[],"usage":{"total_tokens":1200}}`,
		"[DONE]",
	} {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
		_ = http.NewResponseController(w).Flush()
	}
}

func (s *stage) startService(d *demo) error {
	s.token = rand.Text()
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte("demo write "+s.token+"\n"), 0o600); err != nil {
		return err
	}
	env := []string{
		"BACKEND_TYPE=memory",
		"RUNTIME_ROOT=" + d.folder(), "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", s.ports.HTTP),
		"GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", s.ports.GRPC),
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"ADMIN_TOKEN_FILE=" + tokens, fmt.Sprintf("ADMIN_PORT=%d", s.ports.Page),
		"USE_STATSD=false", "LOG_LEVEL=warn", "DRAIN_PERIOD=0s",
		"LIMIT_RESPONSE_HEADERS_ENABLED=true",
	}
	if d.recipe == "" {
		env = append(env, "LIMIT_IETF_HEADERS_ENABLED=true", "LIMIT_RETRY_AFTER_HEADER_ENABLED=true", "LIMIT_PROBLEM_BODY_ENABLED=true")
	}
	return s.start("the service", loopback(s.ports.HTTP)+"/healthcheck", env, d.rls, "serve")
}

// startEnvoy starts Envoy with the folder's envoy.yaml, the stage's ports in place of the
// ports there, and an admin interface.
func (s *stage) startEnvoy(d *demo) error {
	text, err := os.ReadFile(filepath.Join(d.folder(), "envoy.yaml"))
	if err != nil {
		return err
	}
	const field = "port_value: "
	p := &s.ports
	var pairs []string
	for inFile, port := range map[string]int{"8000": p.Front, "8001": p.Shop, "8081": p.GRPC, "8090": p.Upstream} {
		pairs = append(pairs, field+inFile, fmt.Sprint(field, port))
	}
	config := strings.NewReplacer(pairs...).Replace(string(text))
	admin := fmt.Sprintf("admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}\n", p.Admin)
	return s.start("Envoy", loopback(p.Admin)+"/ready", nil, d.envoy, "--config-yaml", admin+config,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
}

// start starts a program, and writes what it waits for.
func (s *stage) start(name, ready string, env []string, path string, args ...string) error {
	begin := time.Now()
	_, _ = fmt.Fprintf(s.out, "Waiting for %s, at most %v ...", name, startTimeout)
	err := s.programs.start("http://"+ready, env, path, args...)
	if err == nil {
		_, _ = fmt.Fprintf(s.out, " ready after %.1fs", time.Since(begin).Seconds())
	}
	_, _ = fmt.Fprintln(s.out)
	return err
}

// wait returns nil when ctx ends, and an error when a process ends before.
func (s *stage) wait(ctx context.Context) error {
	<-s.programs.ctx.Done()
	if ctx.Err() != nil { // Ctrl-C reaches the processes too
		return nil
	}
	return context.Cause(s.programs.ctx)
}

// stop ends all three and returns when they have ended.
func (s *stage) stop() {
	s.programs.stop()
	if s.upstream != nil {
		_ = s.upstream.Close()
	}
	_ = os.RemoveAll(s.dir)
}
