package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// manyHeaders is the number of headers of a descriptor of many entries; Envoy takes 100 headers,
// and needs some itself.
const manyHeaders = 80

// copied has the ways in which Envoy copies bytes of a client into a descriptor: by the path of a
// route, the actions, and the request of a text, in HTTP/1.1 without the line Host and the end.
var copied = []struct {
	path, actions string
	request       func(text string) string
}{
	{"/header", userHeader(""), func(text string) string { return "GET /header HTTP/1.1\r\nx-user: " + text }},
	{"/path", "{request_headers: {header_name: \":path\", descriptor_key: user}}", func(text string) string { return "GET /path?" + text + " HTTP/1.1" }},
	{"/query", "{query_parameters: {query_parameter_name: q, descriptor_key: user}}", func(text string) string {
		var escaped strings.Builder
		for i := range len(text) {
			fmt.Fprintf(&escaped, "%%%02X", text[i])
		}
		return "GET /query?q=" + escaped.String() + " HTTP/1.1"
	}},
	{"/cookie", "{request_headers: {header_name: cookie, descriptor_key: user}}", func(text string) string { return "GET /cookie HTTP/1.1\r\ncookie: user=" + text }},
	{"/host", "{request_headers: {header_name: \":authority\", descriptor_key: user}}", func(text string) string { return "GET /host HTTP/1.1\r\nhost: " + text }},
	{"/metadata", planMetadata(""), func(text string) string { return "GET /metadata HTTP/1.1\r\nx-plan: " + text }},
	{"/many", repeated(manyHeaders, ", ", "{request_headers: {header_name: x-%d, descriptor_key: user}}"), func(text string) string {
		const each = 600 // bytes of a header, of 60 KiB for all
		return "GET /many HTTP/1.1\r\n" + repeated(manyHeaders, "\r\n", "x-%d: "+strings.ReplaceAll(text[:min(len(text), each)], "%", "%%"))
	}},
}

// repeated is a text for each number below n, with a separator between them.
func repeated(n int, separator, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
		all[i], _, _ = strings.Cut(all[i], "%!(EXTRA")
	}
	return strings.Join(all, separator)
}

// TestClientsSwitchNoLimitOff: whatever bytes a client sends, and however many, Envoy gets a decision:
// the first request of a text passes, the next is denied, and a caller who has used up his limit
// stays limited. It takes a minute.
func TestClientsSwitchNoLimitOff(t *testing.T) {
	t.Parallel()
	const once = "rate_limit: {unit: year, requests_per_unit: 1}"
	deep := once
	for range manyHeaders - 1 {
		deep = "descriptors: [{key: user, " + deep + "}]"
	}
	s := serve(t, "domain: edge\ndescriptors:\n  - {key: user, "+once+", "+deep+"}\n  - {key: plan, "+once+"}\n  - {key: caller, "+once+"}\n")
	var routes []frontRoute
	for _, c := range copied {
		routes = append(routes, limited(c.path, actions(c.actions)))
	}
	routes = append(routes, limited("/caller", actions("{generic_key: {descriptor_key: caller, descriptor_value: ann}}")))
	envoy := startEnvoy(t, conformanceText, map[string]any{
		"Listeners": []frontListener{{Name: "front", Filters: []string{
			headerToMetadata("request_rules: [{header: x-plan, on_header_present: {metadata_namespace: caller, key: plan, type: STRING}}]"),
			rateLimit("service", "timeout: 10s"),
		}}},
		"Routes": routes, "Services": map[string]string{"service": portOf(t, s.addrs["gRPC"])}, "Upstream": portOf(t, listen(t, answerOK)),
	})
	c := &rawClient{addr: envoy.Listener("front")}
	defer c.close()
	if first, second := c.ask("GET /caller HTTP/1.1"), c.ask("GET /caller HTTP/1.1"); first != 200 || second != 429 {
		t.Fatalf("ann gets %d and %d", first, second)
	}
	pace := time.NewTicker(time.Minute / time.Duration(256*len(copied)*len(lengths)))
	defer pace.Stop()
	decided := map[string]int{}
	for b := range 256 {
		for i, length := range lengths {
			for j, way := range copied {
				if b == '\n' && way.path != "/query" {
					continue // it ends the line of the header
				}
				<-pace.C
				if way.path == "/metadata" {
					length = min(length, 8000) // Envoy puts no longer header into metadata
				}
				text := fmt.Sprintf("%d.%d.%d.", j, b, i) + strings.Repeat(string([]byte{byte(b)}), length) + "z"
				switch first, second := c.ask(way.request(text)), c.ask(way.request(text)); {
				case first == 200 && second == 429:
					decided[way.path]++
				case first == 200 || first == 429:
					t.Errorf("%s: %d times the byte %#x: %d, and then %d", way.path, length, b, first, second)
				}
			}
		}
		if again := c.ask("GET /caller HTTP/1.1"); again != 429 {
			t.Fatalf("after the byte %#x ann gets %d", b, again)
		}
	}
	t.Logf("texts that Envoy let through: %v", decided)
	for path, least := range map[string]int{"/header": 670, "/path": 275, "/query": 510, "/cookie": 670, "/host": 240, "/metadata": 670, "/many": 670} {
		if decided[path] < least {
			t.Errorf("%s: Envoy let %d texts through, want at least %d", path, decided[path], least)
		}
	}
	if stats := envoy.Admin("/stats?filter=ratelimit.(error|failure_mode_allowed)"); strings.Count(stats, ": 0") != strings.Count(stats, "\n") {
		t.Errorf("Envoy counts errors:\n%s", stats)
	}
	if _, text := s.get("debug", "/stats"); !strings.Contains(text, "rls_panics_total 0\n") {
		t.Error("the service panicked")
	}
}

// lengths are the numbers of times that a text has its byte.
var lengths = []int{1, 1500, 55_000}

// answerOK answers 200 to every request on a connection, whatever its bytes.
func answerOK(conn net.Conn) {
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if line == "\r\n" {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
		}
	}
}

// rawClient sends requests of any bytes on one connection, and on another one after it was closed.
type rawClient struct {
	addr string
	conn net.Conn
	from *bufio.Reader
}

func (c *rawClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask returns the code of the answer, 0 if there is none.
func (c *rawClient) ask(request string) int {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, patience)
		if err != nil {
			return 0
		}
		c.conn, c.from = conn, bufio.NewReader(conn)
	}
	if !strings.Contains(request, "\r\nhost: ") {
		request += "\r\nhost: front"
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	_, _ = c.conn.Write([]byte(request + "\r\n\r\n"))
	answer, err := http.ReadResponse(c.from, nil)
	if err != nil {
		c.close()
		return 0
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests || answer.Close {
		c.close()
	}
	return answer.StatusCode
}
