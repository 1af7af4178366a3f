package integration

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// namingRules put a caller's bytes into metrics in every way that there is.
const namingRules = `
domain: web
descriptors:
  - {key: detailed, detailed_metric: true, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: value, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: wild, value: "p*", detailed_metric: true, rate_limit: {unit: second, requests_per_unit: 2}}
  - key: outer
    value_to_metric: true
    descriptors: [{key: inner, value: "*", value_to_metric: true, rate_limit: {unit: second, requests_per_unit: 2}}]
`

// TestNamesOfCallersTakeNoMemory: callers make up domains, values and limits, and the
// process and its page of metrics stay small, also while metrics are sent to statsd.
// The store is so small that it does not matter.
func TestNamesOfCallersTakeNoMemory(t *testing.T) {
	const (
		domains, values, overrides = 200_000, 1_000_000, 50_000
		perRequest, callers        = 100, 16
	)
	s := serve(t, namingRules, "MEMORY_MAX_KEYS=1000", "USE_STATSD=true", "STATS_FLUSH_INTERVAL=500ms",
		"STATSD_HOST=127.0.0.1", "STATSD_PORT="+discard(t))
	s.want("web", desc("detailed", "first"), ok, 1)
	before := s.footprint().bytes

	var clients [2]pb.RateLimitServiceClient
	for i := range clients {
		clients[i] = s.dial()
	}
	// each asks for the requests 0 to n.
	each := func(n int, request func(i int) *pb.RateLimitRequest) {
		t.Helper()
		var next atomic.Int64
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
					if _, err := clients[caller%len(clients)].ShouldRateLimit(t.Context(), request(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
	}
	batch := func(i int, make func(value string) *descriptor) *pb.RateLimitRequest {
		req := &pb.RateLimitRequest{Domain: "web"}
		for j := range perRequest {
			req.Descriptors = append(req.Descriptors, make(strconv.Itoa(i*perRequest+j)))
		}
		return req
	}

	// The names that come first keep their series. So the first names are those
	// that take the most memory and the largest part of the page, in every counter.
	costly := strings.Repeat(`"`, 230)
	for _, hits := range []uint64{1, 5} {
		each(2000/perRequest, func(i int) *pb.RateLimitRequest {
			return batch(i, func(value string) *descriptor {
				return costing(hits, desc("detailed", costly+value))
			})
		})
	}
	each(domains, func(i int) *pb.RateLimitRequest {
		return &pb.RateLimitRequest{Domain: fmt.Sprint("unknown ", i), Descriptors: []*descriptor{desc("key", "value")}}
	})
	each(values/perRequest, func(i int) *pb.RateLimitRequest {
		return batch(i, func(value string) *descriptor {
			switch i % 4 {
			case 0:
				return desc("detailed", value)
			case 1:
				return desc("value", value)
			case 2:
				return desc("wild", "p"+value)
			}
			return desc("outer", value, "inner", value)
		})
	})
	each(overrides/perRequest, func(i int) *pb.RateLimitRequest {
		return batch(i, func(value string) *descriptor {
			d := desc("over", value)
			d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(i), Unit: 1}
			return d
		})
	})

	_, page := s.get("debug", "/stats")
	after := s.footprint().bytes
	t.Logf("resident: %.1f MiB before, %.1f MiB after; /stats: %d bytes", before/(1<<20), after/(1<<20), len(page))
	if after > before+64<<20 {
		t.Errorf("%.1f MiB more than before", (after-before)/(1<<20))
	}
	if len(page) > 5_000_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	// Nothing is lost.
	if n := s.stat(`ratelimit_service_rate_limit_total_hits{domain="web",key1="other"}`); n < values {
		t.Errorf("%v hits are counted as other", n)
	}
	if n := s.stat("ratelimit_service_rate_limit_other_domain_not_found"); n < domains-10_000 {
		t.Errorf("%v domains are counted as other", n)
	}
}

// discard is the port of a server of statsd that reads and forgets.
func discard(t testing.TB) string {
	t.Helper()
	return portOf(t, listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
}

// listen serves each connection to an address on the loopback, which it returns, and closes the
// connection afterwards.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}
