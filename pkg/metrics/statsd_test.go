package metrics_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/metrics/statsd"
	"example.org/rls/pkg/service"
)

var tags = map[string]string{"zone": "b", "build": "1.2:3"}

// received reads at least count lines from a UDP socket, and sorts them.
func received(t *testing.T, conn net.PacketConn, count int) []string {
	t.Helper()
	var lines []string
	buf := make([]byte, 65536)
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			t.Fatalf("%v after\n%s", err, strings.Join(lines, "\n"))
		}
		for line := range strings.Lines(string(buf[:n])) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		if len(lines) >= count {
			return slices.Sorted(slices.Values(lines))
		}
	}
}

func udp(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// overUDP sends the metrics to a server in statsd's format, with tags.
func overUDP(t *testing.T, m *metrics.Metrics, tags map[string]string) (*metrics.Statsd, net.PacketConn) {
	t.Helper()
	server := udp(t)
	sink := statsd.NewSink("udp", server.LocalAddr().String(), tags, slog.New(slog.DiscardHandler))
	return m.Statsd(sink, time.Hour), server
}

// events returns metrics of a caller who tried to forge lines and tags.
func events(t *testing.T) *metrics.Metrics {
	m := open(t, metrics.Options{MaxSeries: 100, NearLimitRatio: 1})
	entry := descriptors.Entry{Key: "k", Value: "a\nforged:1|c\r\nx.__tag=1"}
	r := rule(t, detailed, entry)
	m.Observer().Observe(allowed(r, entry))
	m.Observer().Observe(&service.Observation{Domain: "no\nsuch|c", Unknown: true, Descriptors: 2})
	for range 3 {
		m.Called(method, 2900*time.Microsecond)
	}
	m.Called(method, 1500*time.Millisecond)
	return m
}

func TestStatsd(t *testing.T) {
	s, server := overUDP(t, events(t), tags)
	s.Close()
	want := []string{
		"ratelimit.service.rate_limit.d.k_a_forged_1_c__x___tag=1.total_hits.__build=1_2_3.__zone=b:1|c",
		"ratelimit.service.rate_limit.d.k_a_forged_1_c__x___tag=1.within_limit.__build=1_2_3.__zone=b:1|c",
		"ratelimit.service.rate_limit.no_such_c.domain_not_found.__build=1_2_3.__zone=b:2|c",
		"ratelimit_server.ShouldRateLimit.response_time.__build=1_2_3.__zone=b:1500|ms",
		"ratelimit_server.ShouldRateLimit.response_time.__build=1_2_3.__zone=b:2|ms|@0.33333333333333326",
		"ratelimit_server.ShouldRateLimit.total_requests.__build=1_2_3.__zone=b:4|c",
	}
	if diff := cmp.Diff(want, received(t, server, len(want))); diff != "" {
		t.Error(diff)
	}
}

// Each Send sends the counts since the last Send and the values of gauges, and nothing else.
func TestStatsdSendsDifferences(t *testing.T) {
	m := open(t, metrics.Options{})
	opened, closed := int64(5), int64(3)
	m.Pool("redis_pool", func() (int64, int64) { return opened - closed, opened })
	s, server := overUDP(t, m, nil)
	m.Loaded(nil)
	s.Send()
	opened, closed = 7, 6
	s.Send()
	m.Loaded(nil)
	m.Loaded(nil)
	m.Observer().Observe(&service.Observation{Result: service.NoStore})
	s.Close()
	want := []string{
		"ratelimit.redis_pool.cx_active:1|g", "ratelimit.redis_pool.cx_active:1|g", "ratelimit.redis_pool.cx_active:2|g",
		"ratelimit.redis_pool.cx_local_close:3|c", "ratelimit.redis_pool.cx_local_close:3|c",
		"ratelimit.redis_pool.cx_total:2|c", "ratelimit.redis_pool.cx_total:5|c",
		"ratelimit.service.call.should_rate_limit.redis_error:1|c",
		"ratelimit.service.config_load_success:1|c", "ratelimit.service.config_load_success:2|c",
	}
	if diff := cmp.Diff(want, received(t, server, len(want))); diff != "" {
		t.Error(diff)
	}
}

// A server over TCP that starts late gets all counts. That it was away is logged
// once.
func TestStatsdServerComesLate(t *testing.T) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))
	var log bytes.Buffer
	m := open(t, metrics.Options{})
	sink := statsd.NewSink("tcp", addr, nil, slog.New(slog.NewTextHandler(&log, nil)))
	m.Loaded(nil)
	s := m.Statsd(sink, time.Hour)
	for range 5 {
		s.Send()
	}
	server, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m.Loaded(nil)
	s.Close()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "ratelimit.service.config_load_success:2|c\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines were logged:\n%s", n, log.String())
	}
}

// Lines that a server did not read because it hung are sent to the next one, except
// for the lines of the write under way.
func TestStatsdServerHangs(t *testing.T) {
	const counters, onItsWay = 4000, 20
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m := open(t, metrics.Options{MaxSeries: 12 * counters, NearLimitRatio: 1})
	entry := descriptors.Entry{Key: "k", Value: "v"}
	r := rule(t, detailed, entry)
	for i := range counters / 2 { // total_hits and within_limit of each
		m.Observer().Observe(allowed(r, descriptors.Entry{Key: "k", Value: strconv.Itoa(i)}))
	}
	// Lines so long that they do not fit in the kernel's buffers.
	tags := map[string]string{"tag": strings.Repeat("x", 4000)}
	sink := statsd.NewSink("tcp", server.Addr().String(), tags, slog.New(slog.DiscardHandler))
	s := m.Statsd(sink, time.Hour)
	var lines [2]int
	for i := range lines {
		if i == 0 {
			s.Send() // the server accepts and does not read
		} else {
			go s.Close()
		}
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(conn)
		lines[i] = bytes.Count(text, []byte("\n"))
		_ = conn.Close()
	}
	if lost := counters - lines[0] - lines[1]; lines[1] == 0 || lost < 0 || lost > onItsWay {
		t.Errorf("%d lines at first and %d later, of %d", lines[0], lines[1], counters)
	}
}

// Without a server over UDP, however often writes fail, one line is logged.
func TestStatsdWithoutServer(t *testing.T) {
	var log bytes.Buffer
	m := open(t, metrics.Options{})
	sink := statsd.NewSink("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t))), nil, slog.New(slog.NewTextHandler(&log, nil)))
	s := m.Statsd(sink, time.Hour)
	testenv.Eventually(t, 10*time.Second, func() bool {
		m.Loaded(nil)
		s.Send()
		return log.Len() > 0
	}, "the refused datagrams are not logged")
	for range 20 {
		m.Loaded(nil)
		s.Send()
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines were logged:\n%s", n, log.String())
	}
}

func TestDogStatsd(t *testing.T) {
	server := udp(t)
	m := events(t)
	m.Pool("redis_pool", connections(2, 0))
	hits, err := statsd.NewMogrifier(`^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$`, "ratelimit.service.rate_limit.$3",
		map[string]string{"domain": "$1", "descriptor": "$2", "nine": "$9"})
	if err != nil {
		t.Fatal(err)
	}
	never, err := statsd.NewMogrifier("^no", "never", nil)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := statsd.NewDogSink(server.LocalAddr().String(), tags, []statsd.Mogrifier{never, hits}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.Statsd(sink, time.Hour).Close()
	want := []string{
		"ratelimit.redis_pool.cx_active:2|g|#build:1_2_3,zone:b",
		"ratelimit.service.rate_limit.no_such_c.domain_not_found:2|c|#build:1_2_3,zone:b",
		"ratelimit.service.rate_limit.total_hits:1|c|#build:1_2_3,zone:b,descriptor:k_a_forged_1_c__x___tag=1,domain:d,nine:$9",
		"ratelimit.service.rate_limit.within_limit:1|c|#build:1_2_3,zone:b,descriptor:k_a_forged_1_c__x___tag=1,domain:d,nine:$9",
		"ratelimit_server.ShouldRateLimit.response_time:1500.000000|ms|#build:1_2_3,zone:b",
		"ratelimit_server.ShouldRateLimit.response_time:2.000000|ms|#build:1_2_3,zone:b",
		"ratelimit_server.ShouldRateLimit.response_time:2.000000|ms|#build:1_2_3,zone:b",
		"ratelimit_server.ShouldRateLimit.response_time:2.000000|ms|#build:1_2_3,zone:b",
		"ratelimit_server.ShouldRateLimit.total_requests:4|c|#build:1_2_3,zone:b",
	}
	got := received(t, server, len(want))
	for i, line := range got { // without the container, which the client adds
		got[i], _, _ = strings.Cut(line, "|c:")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWrongMogrifiers(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		tags          map[string]string
	}{
		{"", "n", nil}, {"(", "n", nil}, {"p", "", nil}, {"p", "n", map[string]string{"": "v"}}, {"p", "n", map[string]string{"k": ""}},
	} {
		if _, err := statsd.NewMogrifier(tt.pattern, tt.name, tt.tags); err == nil {
			t.Errorf("%+v was accepted", tt)
		}
	}
}

// statsdLine is one line of statsd with a name that holds no separator of any
// of the usual tag formats.
var statsdLine = regexp.MustCompile(`^[^\s\x00-\x1f\x7f:|@#,;\[\]]+:\d+\|(c|g|ms)(\|@0?\.\d+)?$`)

// Whatever bytes domains and keys have, each line that arrives at a server is
// one well-formed line.
func TestStatsdLinesAreWellFormed(t *testing.T) {
	m := open(t, metrics.Options{MaxSeries: 10_000, NearLimitRatio: 1})
	r := rule(t, detailed, descriptors.Entry{Key: "k", Value: "v"})
	const alphabet = "ab9 .:|@#,;=[]\"'\\/%*_-\n\r\t\v\x00\x7f\u00a0\u0085\u2028é\xff"
	letters := []rune(alphabet)
	random := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		text := make([]rune, 1+random.IntN(12))
		for i := range text {
			text[i] = letters[random.IntN(len(letters))]
		}
		return string(text)
	}
	for range 100 {
		m.Observer().Observe(allowed(r, descriptors.Entry{Key: "k", Value: name()}))
		m.Observer().Observe(&service.Observation{Domain: name(), Unknown: true, Descriptors: 1})
	}
	s, server := overUDP(t, m, map[string]string{"a tag": "b c"})
	m.Loaded(nil)
	go s.Close()
	for _, line := range received(t, server, 200) {
		if !statsdLine.MatchString(line) {
			t.Errorf("malformed: %q", line)
		}
	}
}
