package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/server"
)

// abuser speaks HTTP/2 as no gRPC client does.
type abuser struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	head   []byte
	stream uint32 // next
}

func abuse(t *testing.T, s *running) *abuser {
	t.Helper()
	a := connect(t, s)
	a.greet(http2.ClientPreface)
	return a
}

// connect returns one that has not said anything yet.
func connect(t *testing.T, s *running) *abuser {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr("gRPC").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * deadline))
	a := &abuser{t: t, conn: conn, framer: http2.NewFramer(conn, conn), stream: 1}
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", rls.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "rls"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	a.head = head.Bytes()
	return a
}

// greet says the preface, or the rest of it, and the first frame.
func (a *abuser) greet(preface string) {
	a.t.Helper()
	_, err := io.WriteString(a.conn, preface)
	if err == nil {
		err = a.framer.WriteSettings()
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// openAndCancel starts a call and cancels it in the same breath.
func (a *abuser) openAndCancel() error {
	err := a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.head, EndHeaders: true})
	if err == nil {
		err = a.framer.WriteRSTStream(a.stream, http2.ErrCodeCancel)
	}
	a.stream += 2
	return err
}

// farewell reads what the server says until it closes the connection, and
// returns its GOAWAY.
func (a *abuser) farewell() (goAway *http2.GoAwayFrame, debug string) {
	a.t.Helper()
	_ = a.conn.SetReadDeadline(time.Now().Add(deadline))
	for {
		frame, err := a.framer.ReadFrame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			a.t.Fatal("the connection is still open")
		}
		if err != nil {
			return goAway, debug
		}
		if f, ok := frame.(*http2.GoAwayFrame); ok {
			goAway, debug = f, string(f.DebugData())
		}
	}
}

func TestCallsCancelledInBulk(t *testing.T) {
	o := options()
	o.GRPC.MaxCancellationsPerSecond = 500
	s := start(t, o)
	other := s.dial(t)
	if err := call(t, other); err != nil {
		t.Fatal(err)
	}
	a := abuse(t, s)
	heard := make(chan struct{})
	var goAway *http2.GoAwayFrame
	var debug string
	go func() {
		defer close(heard)
		goAway, debug = a.farewell()
	}()
	sent := 0
	for sent < 60_000 && a.openAndCancel() == nil {
		sent++
	}
	<-heard
	if sent == 60_000 {
		t.Error("nobody minded 60,000 cancelled calls")
	}
	if goAway == nil || goAway.ErrCode != http2.ErrCodeEnhanceYourCalm || !strings.Contains(debug, "cancelled") {
		t.Errorf("said %v %q", goAway, debug)
	}
	if err := call(t, other); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if _, stats := get(t, s.Addr("debug"), "/stats"); !strings.Contains(stats, "rls_connections_cut_off_total 1\n") {
		t.Error("it is not counted")
	}
}

// Envoy cancels a check when its downstream is gone or its time is up.
func TestSomeCallsMayBeCancelled(t *testing.T) {
	entered := make(chan struct{})
	o := serving(decide(func(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		if req.Domain == "slow" {
			entered <- struct{}{}
			<-ctx.Done()
		}
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	}))
	o.GRPC.MaxCancellationsPerSecond = 100
	conn := start(t, o).dial(t)
	for range 150 { // less than two seconds' worth
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan error)
		go func() {
			_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "slow"})
			called <- err
		}()
		<-entered
		cancel()
		if err := <-called; status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
	if err := call(t, conn); err != nil {
		t.Error(err)
	}
}

func TestLongMetadataIsRefused(t *testing.T) {
	a := abuse(t, start(t, options()))
	var head bytes.Buffer
	head.Write(a.head)
	if err := hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("!", 128<<10), Sensitive: true}); err != nil {
		t.Fatal(err)
	}
	const most = 16 << 10 // bytes in a frame
	err := a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Next(most)})
	for err == nil && head.Len() > 0 {
		part := head.Next(most)
		err = a.framer.WriteContinuation(1, head.Len() == 0, part)
	}
	_ = a.conn.SetReadDeadline(time.Now().Add(deadline))
	for {
		frame, err := a.framer.ReadFrame()
		if err != nil {
			return // closed, which is as good
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.ErrCode != http2.ErrCodeNo {
			return
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			t.Fatalf("answered: %v", headers)
		}
	}
}

// webAddrs are the HTTP listeners and a path of each.
func webAddrs(s *running) map[string]net.Addr {
	return map[string]net.Addr{"/healthcheck": s.Addr("HTTP"), "/rlconfig": s.Addr("debug")}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := start(t, options())
	var slow sync.WaitGroup
	defer slow.Wait()
	for path, addr := range webAddrs(s) {
		for _, begin := range []string{
			"POST " + path + " HTTP/1.1\r\nHost: ",
			"POST " + path + " HTTP/1.1\r\nHost: rls\r\nContent-Length: 10\r\n\r\n1",
		} {
			conn, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			slow.Go(func() {
				defer conn.Close()
				_, err := io.WriteString(conn, begin)
				if err == nil {
					_ = conn.SetReadDeadline(time.Now().Add(2 * deadline))
					_, err = io.ReadAll(conn)
				}
				if err != nil {
					t.Errorf("%q: still open: %v", begin, err)
				}
			})
		}
	}
}

// Clients that connect and do not say what they want neither stay nor hold up
// the end, in which those who do are told to go.
func TestSilentClientsOfGRPC(t *testing.T) {
	t.Parallel()
	half := http2.ClientPreface[:10]
	certs := testenv.Certs(t)
	withTLS := func() server.Options {
		o := options()
		o.GRPC.TLS = certs.Server
		return o
	}
	for name, tt := range map[string]struct {
		options func() server.Options
		client  credentials.TransportCredentials
		say     string
	}{
		"nothing":               {options, insecure.NewCredentials(), ""},
		"half a preface":        {options, insecure.NewCredentials(), half},
		"a preface alone":       {options, insecure.NewCredentials(), http2.ClientPreface},
		"nothing, TLS":          {withTLS, credentials.NewTLS(certs.Client), ""},
		"half a greeting, TLS":  {withTLS, credentials.NewTLS(certs.Client), "\x16\x03\x01\x02\x00\x01"},
		"HTTP/2 instead of TLS": {withTLS, credentials.NewTLS(certs.Client), half},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := tt.options()
			s := start(t, o)
			conn := s.dial(t, grpc.WithTransportCredentials(tt.client))
			if err := call(t, conn); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(connect(t, s).conn, tt.say); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			s.stop(t)
			if took := time.Since(begin); took > o.StopWithin/2 {
				t.Errorf("stopped after %v", took)
			}
			testenv.Eventually(t, deadline, func() bool { return conn.GetState() != connectivity.Ready }, "the other client is told to go")
		})
	}
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, start(t, options())).conn
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("still open")
		}
	})
}

// Envoy's connection_keepalive may be as short as a second.
func TestKeepalivePings(t *testing.T) {
	t.Parallel()
	s := start(t, options())
	t.Run("once a second", func(t *testing.T) {
		t.Parallel()
		a := abuse(t, s)
		_ = a.conn.SetReadDeadline(time.Now().Add(deadline))
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range 5 {
			<-tick.C
			if err := a.framer.WritePing(false, [8]byte{}); err != nil {
				t.Fatal(err)
			}
			for answered := false; !answered; {
				frame, err := a.framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if goAway, cut := frame.(*http2.GoAwayFrame); cut {
					t.Fatalf("told to go: %s", goAway.DebugData())
				}
				ping, is := frame.(*http2.PingFrame)
				answered = is && ping.IsAck()
			}
		}
	})
	t.Run("all the time", func(t *testing.T) {
		t.Parallel()
		a := abuse(t, s)
		go func() {
			for a.framer.WritePing(false, [8]byte{}) == nil {
			}
		}()
		if goAway, debug := a.farewell(); goAway == nil || goAway.ErrCode != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("said %v %q", goAway, debug)
		}
	})
}

// A client that connects while the server stops is not cut off: its call is
// answered, and then it is told to go.
func TestHandshakesThatBeganAreFinished(t *testing.T) {
	o := options()
	o.StopWithin = 10 * deadline // a part of it is for handshakes
	s := start(t, o)
	a := connect(t, s)
	const begun = 10 // bytes of the preface
	if _, err := io.WriteString(a.conn, http2.ClientPreface[:begun]); err != nil {
		t.Fatal(err)
	}
	if err := call(t, s.dial(t)); err != nil { // the one before it was accepted, too
		t.Fatal(err)
	}
	s.cancel()
	testenv.Eventually(t, deadline, func() bool {
		conn, err := net.Dial("tcp", s.Addr("gRPC").String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, "nobody is let in any more")
	a.greet(http2.ClientPreface[begun:])
	err := a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.head, EndHeaders: true})
	if err == nil {
		err = a.framer.WriteData(1, true, make([]byte, 5)) // an empty message
	}
	for answered := false; err == nil && !answered; {
		var frame http2.Frame
		frame, err = a.framer.ReadFrame()
		_, answered = frame.(*http2.HeadersFrame)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestLongHeaderIsRefused(t *testing.T) {
	s := start(t, options())
	for path, addr := range webAddrs(s) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr.String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("a", 128<<10))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // closed
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %v", path, resp.Status)
		}
	}
}
