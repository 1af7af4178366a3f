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
	"syscall"
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

// abuser is a client that writes HTTP/2 frames of its choice.
type abuser struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	head   []byte // the headers of a call, encoded
	stream uint32 // of the next call
}

func abuse(t *testing.T, s *running) *abuser {
	t.Helper()
	a := connect(t, s)
	a.greet(http2.ClientPreface)
	return a
}

// connect returns an abuser that has sent nothing yet.
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

// greet sends the preface, or the rest of it, and the first frame.
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

// open writes the start of a call, without its request, and returns the stream.
func (a *abuser) open(f *http2.Framer) (uint32, error) {
	stream := a.stream
	a.stream += 2
	return stream, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.head, EndHeaders: true})
}

// next reads a frame; nil means that the server has closed the connection. It
// fails the test when the server does neither within the deadline.
func (a *abuser) next() http2.Frame {
	a.t.Helper()
	_ = a.conn.SetReadDeadline(time.Now().Add(deadline))
	frame, err := a.framer.ReadFrame()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		a.t.Fatal("the connection is still open, and silent")
	}
	if err != nil {
		return nil
	}
	return frame
}

// farewell reads until the server closes the connection, and returns its GOAWAY
// and the debug data in it.
func (a *abuser) farewell() (goAway *http2.GoAwayFrame, debug string) {
	a.t.Helper()
	for frame := a.next(); frame != nil; frame = a.next() {
		if f, ok := frame.(*http2.GoAwayFrame); ok {
			goAway, debug = f, string(f.DebugData())
		}
	}
	return goAway, debug
}

// A client whose streams are reset in bulk, by itself or by the server because of
// frames that it sends, is told to go; other connections go on.
func TestCallsResetInBulk(t *testing.T) {
	const rate, calls = 10, 60 // twice the rate may come at once
	for name, reset := range map[string]func(f *http2.Framer, stream uint32) error{
		"RST_STREAM": func(f *http2.Framer, stream uint32) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) },
		"RST_STREAM with NO_ERROR": func(f *http2.Framer, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeNo)
		},
		"WINDOW_UPDATE of 0":                   func(f *http2.Framer, stream uint32) error { return f.WriteWindowUpdate(stream, 0) },
		"more calls than MaxConcurrentStreams": func(*http2.Framer, uint32) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.GRPC.MaxCancellationsPerSecond, o.GRPC.MaxConcurrentStreams = rate, 5
			s := start(t, o)
			other := s.dial(t)
			if err := call(t, other); err != nil {
				t.Fatal(err)
			}
			a := abuse(t, s)
			// In one write: a connection that is closed before all of its bytes
			// are read is reset by the system, and the client may miss GOAWAY.
			var bulk bytes.Buffer
			framer := http2.NewFramer(&bulk, nil)
			framer.AllowIllegalWrites = true
			for range calls {
				stream, err := a.open(framer)
				if err == nil {
					err = reset(framer, stream)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := bulk.WriteTo(a.conn); err != nil {
				t.Fatal(err)
			}
			goAway, debug := a.farewell()
			if goAway == nil || goAway.ErrCode != http2.ErrCodeEnhanceYourCalm || !strings.Contains(debug, "cancelled") {
				t.Errorf("said %v %q", goAway, debug)
			}
			if err := call(t, other); err != nil {
				t.Errorf("another connection: %v", err)
			}
			if _, stats := get(t, s.Addr("debug"), "/stats"); !strings.Contains(stats, "rls_connections_cut_off_total 1\n") {
				t.Error("rls_connections_cut_off_total is not 1")
			}
		})
	}
}

// Envoy cancels a call when its downstream is gone or its timeout has passed.
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
	for range 150 { // fewer than twice the rate
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

// A call with more metadata than the server takes is reset, or its connection
// closed; it is not answered.
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
	for frame := a.next(); frame != nil; frame = a.next() {
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			if f.ErrCode == http2.ErrCodeNo {
				t.Error("reset without an error")
			}
			return
		case *http2.HeadersFrame:
			t.Fatalf("answered: %v", f)
		}
	}
}

// webAddrs are the HTTP listeners by the path of one of their pages.
func webAddrs(s *running) map[string]net.Addr {
	return map[string]net.Addr{"/healthcheck": s.Addr("HTTP"), "/rlconfig": s.Addr("debug")}
}

// The server closes the connection of a client that does not finish its request.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := start(t, options())
	var slow sync.WaitGroup
	defer slow.Wait()
	for path, addr := range webAddrs(s) {
		for _, begin := range []string{ // a header and a body that do not end
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

// A client that connects and sends no call is disconnected after a while. It does
// not hold up the server's end, and clients with calls get their GOAWAY.
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
		sends   string
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
			if _, err := io.WriteString(connect(t, s).conn, tt.sends); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			s.stop(t)
			if took := time.Since(begin); took > o.StopWithin/2 {
				t.Errorf("stopped after %v", took)
			}
			testenv.Eventually(t, deadline, func() bool { return conn.GetState() != connectivity.Ready }, "the other client is disconnected")
		})
	}
	t.Run("disconnected", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, start(t, options())).conn
		if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("still open after %v", 2*deadline)
		}
	})
}

// A ping each second, as Envoy's connection_keepalive may send, is fine; pings
// without a pause are answered with GOAWAY.
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

// A client that is connecting when the server stops is not disconnected: its call
// is answered before GOAWAY.
func TestHandshakesThatBeganAreFinished(t *testing.T) {
	o := options()
	o.StopWithin = 10 * deadline // a part of it is for handshakes
	s := start(t, o)
	a := connect(t, s)
	const begun = 10 // bytes of the preface
	if _, err := io.WriteString(a.conn, http2.ClientPreface[:begun]); err != nil {
		t.Fatal(err)
	}
	if err := call(t, s.dial(t)); err != nil { // so the connection before it was accepted, too
		t.Fatal(err)
	}
	s.cancel()
	testenv.Eventually(t, deadline, func() bool {
		conn, err := net.Dial("tcp", s.Addr("gRPC").String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, "no connection is accepted any more")
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
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			continue // closed while the header was being sent
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %v", path, resp.Status)
		}
	}
}
