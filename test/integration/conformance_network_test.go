package integration

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed testdata/envoy_network.yaml
var envoyNetworkText string

const networkRules = `
domain: edge
descriptors:
  - {key: connections, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: generic_key, value: thrift, rate_limit: {unit: year, requests_per_unit: 2}}
`

// The kinds of Thrift messages.
const thriftCall, thriftReply, thriftException = 1, 2, 3

// thriftMessage is a framed message of Thrift's binary protocol, with an empty
// struct in it.
func thriftMessage(kind byte) []byte {
	const name = "ping"
	message := []byte{0x80, 0x01, 0, kind}
	message = binary.BigEndian.AppendUint32(message, uint32(len(name)))
	message = append(message, name...)
	message = binary.BigEndian.AppendUint32(message, 1) // sequence id
	message = append(message, 0)                        // end of struct
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// readThrift reads a message and returns its kind and the bytes after its header.
func readThrift(r io.Reader) (kind byte, rest string, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, "", err
	}
	message := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, message); err != nil {
		return 0, "", err
	}
	if len(message) < 4 {
		return 0, "", io.ErrUnexpectedEOF
	}
	return message[3], string(message[4:]), nil
}

// thriftUpstream starts a Thrift server that replies to every call.
func thriftUpstream(t *testing.T) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				for {
					if _, _, err := readThrift(conn); err != nil {
						return
					}
					if _, err := conn.Write(thriftMessage(thriftReply)); err != nil {
						return
					}
				}
			})
		}
	})
	return portOf(t, listener.Addr().String())
}

// thriftClient calls over a connection of its own.
type thriftClient struct{ net.Conn }

func dialThrift(t *testing.T, addr string) thriftClient {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return thriftClient{conn}
}

func (c thriftClient) call() (kind byte, rest string, err error) {
	if _, err := c.Write(thriftMessage(thriftCall)); err != nil {
		return 0, "", err
	}
	return readThrift(c)
}

func TestConformanceOfNetworkFilters(t *testing.T) {
	t.Parallel()
	s := serve(t, networkRules)
	f := &front{envoy: startEnvoy(t, envoyNetworkText, map[string]any{
		"Upstream": thriftUpstream(t), "Service": portOf(t, s.addrs["gRPC"]),
	})}

	t.Run("the network filter closes the connection", func(t *testing.T) {
		for range 2 {
			client := dialThrift(t, f.envoy.Listener("tcp"))
			for range 3 { // the filter asks once per connection
				if kind, _, err := client.call(); err != nil || kind != thriftReply {
					t.Fatalf("answered %d: %v", kind, err)
				}
			}
		}
		_, _, err := dialThrift(t, f.envoy.Listener("tcp")).call()
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the third connection: %v", err)
		}
		for name, want := range map[string]int{"total": 3, "ok": 2, "over_limit": 1, "cx_closed": 1, "error": 0} {
			f.wantCounter(t, "ratelimit.l4."+name, want)
		}
	})
	t.Run("thrift", func(t *testing.T) {
		client := dialThrift(t, f.envoy.Listener("thrift"))
		for _, want := range []byte{thriftReply, thriftReply, thriftException} {
			kind, rest, err := client.call()
			if err != nil || kind != want || strings.Contains(rest, "over limit") != (want == thriftException) {
				t.Errorf("answered %d %q (%v), want %d", kind, rest, err, want)
			}
		}
		f.wantCounter(t, "cluster.upstream.ratelimit.over_limit", 1)
	})
}
