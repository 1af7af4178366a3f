package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
)

const annsRequest = `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]`

// paths are all routes with the method that they want and a body that does something.
var paths = []struct {
	path, method, body string
	write              bool
}{
	{"/v1/status", "GET", "", false},
	{"/v1/rules", "GET", "", false},
	{"/v1/top", "GET", "", false},
	{"/v1/audit", "GET", "", false},
	{"/v1/history", "GET", "", false},
	{"/v1/grants", "GET", "", false},
	{"/v1/events", "GET", "", false},
	{"/v1/denials", "GET", "", false},
	{"/v1/explain", "POST", annsRequest + "}", false},
	{"/v1/get", "POST", annsRequest + "}", false},
	{"/v1/reset", "POST", annsRequest + "}", true},
	{"/v1/grant", "POST", annsRequest + `,"hits":5}`, true},
	{"/v1/forget", "POST", annsRequest + "}", true},
}

// Every path, every method and every kind of caller: a caller without a right token
// gets 401 and changes nothing, and a reader writes nothing.
func TestEveryPathNeedsAToken(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 3)
	tokens := map[string][]header{
		"none": nil, "empty": {with("Authorization", "")}, "wrong": {bearer("wrong-token-of-mallory")},
		"basic": {with("Authorization", "Basic "+writeToken)}, "cut": {bearer(writeToken[:len(writeToken)-1])},
		"prefixed": {bearer(writeToken + "x")}, "name": {bearer("alice")}, "none, as a cookie": {with("Cookie", "token="+writeToken)},
		"two schemes": {with("Authorization", "Bearer  Bearer "+writeToken)},
	}
	unknown := []string{"/v1", "/v1/", "/v1/nothing", "/favicon.ico", "/index.html", "//v1/audit", "/v1/../v1/audit", "/debug/pprof/", "/metrics",
		"/rls.admin.v1.Admin/Get", "/v1/audit/", "/V1/audit", "/assets", "/v1/audit?token=" + writeToken}
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"}
	for _, to := range paths {
		unknown = append(unknown, to.path)
	}
	for _, path := range unknown {
		for _, method := range methods {
			for name, headers := range tokens {
				got := r.ask(method, path, annsRequest+`,"hits":5}`, headers...)
				if got.code != 401 || got.header.Get("WWW-Authenticate") != "Bearer" || method != "HEAD" && got.json["code"] != "UNAUTHENTICATED" || len(got.json) > 2 {
					t.Errorf("%s %s, token %s: got %d %s", method, path, name, got.code, got.text)
				}
			}
		}
	}
	if got := r.ask("OPTIONS", "/", "", func(r *http.Request) { r.URL.Opaque = "*" }); got.code != 401 {
		t.Errorf("OPTIONS *: got %d %s", got.code, got.text)
	}
	if got := r.remaining("ann"); got != 7.0 {
		t.Errorf("callers without a token have changed a counter: %v remain, want 7", got)
	}
	if got := r.ask("GET", "/v1/audit", "", bearer(readToken)); got.text != `{"entries":[]}`+"\n" {
		t.Errorf("the audit has %s", got.text)
	}
	if strings.Contains(r.log.String(), writeToken) || strings.Contains(r.log.String(), "mallory") {
		t.Errorf("the log has a token: %s", r.log)
	}
}

func TestMethodsAndRoles(t *testing.T) {
	r := start(t, listening{})
	for _, to := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			for token, writes := range map[string]bool{readToken: false, writeToken: true} {
				if to.path == "/v1/events" && method == "GET" {
					continue // TestStreamsEnd
				}
				got := r.ask(method, to.path, to.body, bearer(token))
				want, code := 200, any(nil)
				switch {
				case method != to.method && (to.method != "GET" || method != "HEAD"):
					want, code = 405, "UNIMPLEMENTED"
					if !strings.Contains(got.header.Get("Allow"), to.method) {
						t.Errorf("%s %s: Allow is %q", method, to.path, got.header.Get("Allow"))
					}
				case to.write && !writes:
					want, code = 403, "PERMISSION_DENIED"
				}
				if got.code != want || method != "HEAD" && got.json["code"] != code {
					t.Errorf("%s %s with %s: got %d %s, want %d %v", method, to.path, token, got.code, got.text, want, code)
				}
				if got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Set-Cookie") != "" {
					t.Errorf("%s %s: headers %v", method, to.path, got.header)
				}
			}
		}
	}
	for _, path := range []string{"/v1/nothing", "/favicon.ico", "/rls.admin.v1.Admin/Get", "//v1/audit", "/v1/audit/"} {
		if got := r.ask("GET", path, "", bearer(writeToken)); got.code != 404 || got.json["code"] != "NOT_FOUND" {
			t.Errorf("%s: got %d %s", path, got.code, got.text)
		}
	}
}

// Only the page's files need no token.
func TestPage(t *testing.T) {
	r := start(t, listening{})
	for _, path := range []string{"/", "/assets/app.js"} {
		if got := r.ask("GET", path, ""); got.code != 200 || got.text == "" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d %s %v", path, got.code, got.text, got.header)
		}
		if got := r.ask("POST", path, ""); got.code != 401 {
			t.Errorf("POST %s: got %d", path, got.code)
		}
		if got := r.ask("POST", path, "", bearer(writeToken)); got.code != 405 {
			t.Errorf("POST %s with a token: got %d", path, got.code)
		}
	}
}

func TestForeignHostsAndOrigins(t *testing.T) {
	r := start(t, listening{})
	token := bearer(writeToken)
	own := strings.TrimPrefix(r.url, "http://")
	for _, test := range []struct {
		name   string
		change []header
		want   int
	}{
		{"localhost", []header{host("localhost:1")}, 200},
		{"a loopback address", []header{host("127.0.0.9")}, 200},
		{"IPv6's loopback", []header{host("[::1]:6071")}, 200},
		{"an allowed name", []header{host("RLS.example:443")}, 200},
		{"its absolute form", []header{host("rls.example.")}, 200},
		{"a foreign name", []header{host("evil.example")}, 421},
		{"a name below", []header{host("localhost.evil.example")}, 421},
		{"a foreign address", []header{host("192.0.2.1:6071")}, 421},
		{"an empty name", []header{host(":6071")}, 421},
		{"its own origin", []header{with("Origin", "http://"+own)}, 200},
		{"its own name's origin", []header{host("rls.example"), with("Origin", "https://rls.example")}, 200},
		{"a foreign origin", []header{with("Origin", "https://evil.example")}, 403},
		{"another port", []header{with("Origin", "http://127.0.0.1:1")}, 403},
		{"no origin to name", []header{with("Origin", "null")}, 403},
		{"a foreign origin of an allowed host", []header{host("rls.example"), with("Origin", "http://localhost")}, 403},
	} {
		for _, path := range []string{"/v1/audit", "/", "/assets/app.js", "/v1/nothing"} {
			want := test.want
			if want == 200 && path == "/v1/nothing" {
				want = 404
			}
			got := r.ask("GET", path, "", append(slices.Clone(test.change), token)...)
			if got.code != want || want > 400 && got.json["message"] == nil {
				t.Errorf("%s: %s: got %d %s, want %d", test.name, path, got.code, got.text, want)
			}
		}
		if test.want > 400 {
			if got := r.ask("GET", "/", "", test.change...); got.code != test.want {
				t.Errorf("%s, without a token: got %d", test.name, got.code)
			}
		}
	}
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	r := start(t, listening{socket: socket})
	r.charge("ann", 3)
	if got := r.ask("POST", "/v1/reset", annsRequest+"}"); got.code != 200 {
		t.Fatalf("got %d %s", got.code, got.text)
	}
	entry := r.lastAudited()
	if entry["who"] != "unix" || entry["from"] != "unix:"+socket {
		t.Errorf("the audit has %v", entry)
	}
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("the socket has the mode %o", got)
	}
}

// The subject of a client's certificate stands in the audit, which gRPC reads over TLS.
// A certificate does not take the place of a token.
func TestClientCertificate(t *testing.T) {
	certs := testenv.Certs(t)
	r := start(t, listening{config: certs.Server})
	transport := r.client.Transport.(*http.Transport)
	transport.TLSClientConfig = certs.Client
	if got := r.ask("GET", "/v1/audit", ""); got.code != 401 {
		t.Errorf("without a token: got %d %s", got.code, got.text)
	}
	r.charge("ann", 3)
	if got := r.ask("POST", "/v1/reset", annsRequest+"}", bearer(writeToken)); got.code != 200 {
		t.Fatalf("got %d %s", got.code, got.text)
	}
	if got := r.ask("GET", "/v1/audit", "", bearer(readToken)); !strings.Contains(got.text, `"who":"CN=client"`) {
		t.Errorf("got %s", got.text)
	}
}

// A changed file counts within a second. A wrong file keeps a token only if the token
// counted before and stands in a right line. The log has no tokens.
func TestTokensAreReadAgain(t *testing.T) {
	r := start(t, listening{})
	const newToken = "new-token-of-carol"
	const gone = "\x00" // in place of a file
	for _, step := range []struct {
		file                string
		carol, alice, write bool // who is let in, and whether alice may write
		log                 string
	}{
		{"\ufeffcarol read " + newToken + "\n", true, false, false, "changed files are in force"},
		{tokenFile + "carol read " + newToken + "\n", true, true, true, "changed files are in force"},
		{"alice write " + writeToken + "\nmallory admin secret-of-mallory\nx\n", false, true, true, "tokens:2: "},
		{tokenFile, false, true, true, "changed files are in force"},
		{"alice read " + writeToken + "\ncarol read " + newToken + "\nmallory read secret", false, true, false, "tokens:3: "},
		{"# nobody any more\n", false, false, false, "tokens: no token"},
		{tokenFile, false, true, true, "changed files are in force"},
		{"", false, false, false, "tokens: no token"},
		{tokenFile, false, true, true, "changed files are in force"},
		{gone, false, false, false, "no such file"},
		{tokenFile, false, true, true, "changed files are in force"},
	} {
		logged := len(r.log.String())
		if step.file == gone {
			if err := os.Remove(r.tokens); err != nil {
				t.Fatal(err)
			}
		} else {
			r.writeTokens(step.file)
		}
		testenv.Eventually(t, 5*time.Second, func() bool { return strings.Contains(r.log.String()[logged:], step.log) }, "the log has "+step.log)
		allowed := func(method, path, token string) bool {
			return r.ask(method, path, annsRequest+"}", bearer(token)).code == 200
		}
		for what, got := range map[string][2]bool{
			"carol reads":  {allowed("GET", "/v1/audit", newToken), step.carol},
			"alice reads":  {allowed("GET", "/v1/audit", writeToken), step.alice},
			"alice writes": {allowed("POST", "/v1/reset", writeToken), step.write},
		} {
			if got[0] != got[1] {
				t.Errorf("%q: %s: %v", step.file, what, got[0])
			}
		}
	}
	if strings.Contains(r.log.String(), "secret-of-mallory") {
		t.Errorf("the log has a token: %s", r.log)
	}
}

// A client that sends a large body before it reads gets the answer.
func TestRefusedBodyIsRead(t *testing.T) {
	r := start(t, listening{})
	const size = 8 << 20
	for token, want := range map[string]string{"": "401", writeToken: "413"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		head := fmt.Sprintf("POST /v1/get HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", token, size)
		if _, err := conn.Write(append([]byte(head), make([]byte, size)...)); err != nil {
			t.Fatalf("want %s: the body cannot be sent: %v", want, err)
		}
		answer := make([]byte, len("HTTP/1.1 401"))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 "+want {
			t.Errorf("want %s, got %q, %v", want, answer, err)
		}
	}
}

func TestWrongTokenFiles(t *testing.T) {
	const good = "alice write 0123456789abcdef\n"
	for text, want := range map[string]string{
		"":                "no token: want a line NAME ROLE TOKEN",
		"# nobody\n":      "no token: want a line NAME ROLE TOKEN",
		good + "bob read": ":2: 2 words, want 3: NAME ROLE TOKEN",
		good + "bob read a-secret-token-of-bob x":       ":2: word 4 is neither KEY=VALUE nor domain:NAME",
		good + "bob read a-secret-token-of-bob a=b c=":  ":2: word 5 is neither KEY=VALUE",
		good + "bob read a-secret-token-of-bob a=b a=b": ":2: word 5 has the key of a word before it",
		"bob read a-secret-token-of-bob domain:a=b":     ":1: word 4 is no domain:NAME",
		"bob read a-secret-token-of-bob domain:shop":    ":1: a binding without KEY=VALUE",
		"bob write a-secret-token-of-bob tenant=acme":   ":1: words behind a token that may write",
		"bob tenant=acme read a-secret-token-of-bob":    ":1: the second word is no role",
		"bob admin a-secret-token-of-bob":               ":1: the second word is no role, want read or write",
		"bob read a-secret-token":                       ":1: a token of 14 bytes, want at least 16",
		good + "alice read a-secret-token-of-bob":       ":2: there is another token of the name",
		good + "bob read 0123456789abcdef":              ":2: the token of \"bob\" is that of another name",
		"x\n" + good + "bob read short":                 ":3: a token of 5 bytes",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := admin.OpenTokens(reread.NewWatcher(nil), path)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// events opens the stream of events, and reads its first event.
func (r *rig) events(token string) io.Reader {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	r.t.Cleanup(cancel)
	response := r.send(ctx, http.MethodGet, "/v1/events", "", bearer(token))
	r.t.Cleanup(func() { _ = response.Body.Close() })
	first := make([]byte, 5)
	if _, err := response.Body.Read(first); err != nil || string(first) != "data:" {
		r.t.Fatalf("got %q, %v", first, err)
	}
	return response.Body
}

// A stream ends when its caller's token no longer counts.
func TestStreamsEndWithTheirTokens(t *testing.T) {
	r := start(t, listening{})
	events := r.events(readToken)
	r.writeTokens("alice write " + writeToken + "\n")
	if _, err := io.Copy(io.Discard, events); err != nil {
		t.Errorf("the events did not end: %v", err)
	}
}

// Streams end when the process does, so that they do not hold it up.
func TestStreamsEnd(t *testing.T) {
	r := start(t, listening{})
	r.events(readToken)
	r.end()
	if err := <-r.stopped; err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "cut off") {
		t.Errorf("the stream held up the end: %s", r.log)
	}
}

// A gRPC client is told that the API is JSON over HTTP, if it has a token.
func TestThereIsNoGRPC(t *testing.T) {
	r := start(t, listening{})
	conn, err := grpc.NewClient("passthrough:///"+r.addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "wrong-token-of-mallory": codes.Unauthenticated, writeToken: codes.Unimplemented} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		for _, method := range []string{"/rls.admin.v1.Admin/Get", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
			if err := conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty)); status.Code(err) != want {
				t.Errorf("%s with %q: got %v", method, token, err)
			}
		}
	}
}
