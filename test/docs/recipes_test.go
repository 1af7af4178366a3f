package docs_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
)

const recipesDoc = "docs/recipes.md"

// A recipe is a section of the document with rules.
type recipe struct {
	name, domain string
	rules        string
	tests        []string       // for rls test, beside rules.yaml
	envoy        map[string]any // fields of the HttpConnectionManager
	sent         *part          // the table of requests and their answers
	metrics      string         // lines that the service's metrics have afterwards
}

// recipes returns the document's configuration of Envoy, and its recipes.
func recipes(t *testing.T) (frame map[string]any, all []*recipe) {
	t.Helper()
	for _, p := range parts(t, recipesDoc) {
		var last *recipe
		if len(all) > 0 && all[len(all)-1].name == p.heading {
			last = all[len(all)-1]
		}
		switch {
		case p.lang == "yaml" && strings.HasPrefix(p.text, "static_resources:"):
			frame = parseYAML(t, p)
		case p.lang == "yaml" && strings.HasPrefix(p.text, "domain:"):
			all = append(all, &recipe{name: p.heading, domain: parseYAML(t, p)["domain"].(string), rules: p.text})
		case last == nil: // of a gateway
		case p.lang == "yaml" && strings.HasPrefix(p.text, "apiVersion: networking.istio.io"):
			last.envoy = patched(t, p)
		case p.lang == "yaml" && strings.HasPrefix(p.text, "rules:"):
			last.tests = append(last.tests, p.text)
		case p.lang == "yaml":
			last.envoy = parseYAML(t, p)
		case p.isTable() && p.rows[0][0] == "sent":
			last.sent = p
		case p.lang == "text":
			last.metrics = p.text
		default:
			t.Errorf("%s:%d: the test does not know what this block is for", recipesDoc, p.line)
		}
	}
	if frame == nil || len(all) < 11 {
		t.Fatalf("%s has %d recipes, or has lost its configuration of Envoy", recipesDoc, len(all))
	}
	return frame, all
}

func parseYAML(t *testing.T, p *part) map[string]any {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(p.text), &value); err != nil {
		t.Fatalf("%s:%d: %v", recipesDoc, p.line, err)
	}
	return value
}

// patched returns the fields of the HttpConnectionManager after the patches of an
// EnvoyFilter: a filter, and descriptors of all virtual hosts. Istio names clusters in
// its own way.
func patched(t *testing.T, p *part) map[string]any {
	t.Helper()
	host := map[string]any{
		"name": "istio", "domains": []any{"*"},
		"routes": []any{map[string]any{"match": map[string]any{"prefix": "/"}, "route": map[string]any{"cluster": "upstream"}}},
	}
	manager := map[string]any{"route_config": map[string]any{"virtual_hosts": []any{host}}}
	named := *p
	named.text = regexp.MustCompile(`cluster_name: outbound[^}]*`).ReplaceAllString(p.text, "cluster_name: ratelimit")
	for _, patch := range parseYAML(t, &named)["spec"].(map[string]any)["configPatches"].([]any) {
		patch := patch.(map[string]any)
		value := patch["patch"].(map[string]any)["value"].(map[string]any)
		switch patch["applyTo"] {
		case "HTTP_FILTER":
			manager["http_filters"] = []any{value}
		case "VIRTUAL_HOST":
			merge(host, value)
		default:
			t.Fatalf("%s:%d: the test does not know how to apply to %v", recipesDoc, p.line, patch["applyTo"])
		}
	}
	return manager
}

// TestRecipes serves the rules of all recipes, starts one Envoy with a listener for
// each, sends the requests of its table, and compares the answers.
func TestRecipes(t *testing.T) {
	frame, all := recipes(t)
	folder := filepath.Join(t.TempDir(), "rules")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		writeFile(t, filepath.Join(folder, strings.ReplaceAll(r.domain, "/", "-")+".yaml"), r.rules)
	}
	rls := serve(t, []string{"BACKEND_TYPE=memory", "RUNTIME_ROOT=" + filepath.Dir(folder), "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false"})
	// The upstream answers with x-tokens as its URL says.
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tokens := r.URL.Query().Get("x-tokens"); tokens != "" {
			w.Header().Set("x-tokens", tokens)
		}
	}))
	t.Cleanup(upstream.Close)
	config, err := yaml.Marshal(envoyOf(t, frame, all))
	if err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, strings.NewReplacer(
		"address: 0.0.0.0", "address: 127.0.0.1", "port_value: 8000", "port_value: 0",
		"address: upstream.example.org", "address: 127.0.0.1", "port_value: 8080", "port_value: "+port(upstream.Listener.Addr().String()),
		"address: rls.example.org", "address: 127.0.0.1", "port_value: 8081", "port_value: "+port(rls.grpc),
	).Replace(string(config)))
	// Sliding windows are exact while no minute ends.
	inOneMinute(t)
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			if r.envoy == nil || r.sent == nil {
				t.Fatal("the recipe has no configuration of Envoy, or no table of requests")
			}
			for _, row := range r.sent.rows[1:] {
				play(t, "http://"+envoy.Listener(r.domain), row[0], row[1])
			}
			if r.metrics != "" {
				if stats := get(t, rls.debug+"/stats"); !strings.Contains(stats, r.metrics) {
					t.Errorf("the metrics do not have\n%s", r.metrics)
				}
			}
		})
	}
}

// TestRecipesInSimulatedTime runs the tests of rules that recipes show, and checks
// all rules.
func TestRecipesInSimulatedTime(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	_, all := recipes(t)
	ran := 0
	for _, r := range all {
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, "rules.yaml"), r.rules)
		if out, err := exec.Command(program, "check", "--strict", dir).CombinedOutput(); err != nil && !strings.Contains(string(out), "[old-shadow]") {
			t.Errorf("%s: %v\n%s", r.name, err, out)
		}
		for n, text := range r.tests {
			writeFile(t, filepath.Join(dir, fmt.Sprintf("%d_test.yaml", n)), text)
		}
		if len(r.tests) > 0 {
			ran++
			if out, err := exec.Command(program, "test", dir).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", r.name, err, out)
			}
		}
	}
	if ran < 3 {
		t.Errorf("only %d recipes have tests", ran)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// envoyOf is the frame with a listener for each recipe.
func envoyOf(t *testing.T, frame map[string]any, all []*recipe) map[string]any {
	t.Helper()
	resources := frame["static_resources"].(map[string]any)
	front := resources["listeners"].([]any)[0]
	var listeners []any
	for _, r := range all {
		listener := clone(t, front)
		listener["name"] = r.domain
		chain := listener["filter_chains"].([]any)[0].(map[string]any)
		manager := chain["filters"].([]any)[0].(map[string]any)["typed_config"].(map[string]any)
		filters := manager["http_filters"].([]any)
		own, _ := r.envoy["http_filters"].([]any)
		merge(manager, r.envoy)
		manager["http_filters"] = mergeFilters(filters, own)
		for _, f := range manager["http_filters"].([]any) {
			if f := f.(map[string]any); f["name"] == "envoy.filters.http.ratelimit" {
				f["typed_config"].(map[string]any)["domain"] = r.domain
			}
		}
		listeners = append(listeners, listener)
	}
	resources["listeners"] = listeners
	return frame
}

func clone(t *testing.T, value any) (copied map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err == nil {
		err = yaml.Unmarshal(text, &copied)
	}
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// merge sets the fields of from in to, and those of mappings in mappings.
func merge(to, from map[string]any) {
	for key, value := range from {
		old, isMap := to[key].(map[string]any)
		if more, ok := value.(map[string]any); ok && isMap {
			merge(old, more)
		} else {
			to[key] = value
		}
	}
}

// mergeFilters puts new filters first and merges the others with the filter of
// their name.
func mergeFilters(filters, own []any) []any {
	var first []any
	for _, o := range own {
		o := o.(map[string]any)
		i := slices.IndexFunc(filters, func(f any) bool { return f.(map[string]any)["name"] == o["name"] })
		if i < 0 {
			first = append(first, o)
		} else {
			merge(filters[i].(map[string]any), o)
		}
	}
	return append(first, filters...)
}

func port(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	sentPattern   = regexp.MustCompile("^`(\\d+) ([A-Z]+) (\\S+) ?([^`]*)`(.*)$")
	answerPattern = regexp.MustCompile(`(\d+) × (\d+)`)
	tokenPattern  = regexp.MustCompile(`TOKEN\(([^)]*)\)`)
)

// play sends the requests of a row one after the other, such as
// "`2 GET /path x-user: ann; x-plan: free`", and compares the numbers of each status
// with the answers, such as "1 × 200, 1 × 429". A row that ends in "once the charges
// have arrived" is sent until it gets these answers; one that ends in "in at least
// 600ms" takes so long.
func play(t *testing.T, url, sent, answers string) {
	t.Helper()
	m := sentPattern.FindStringSubmatch(sent)
	if m == nil {
		t.Fatalf("%s cannot be sent", sent)
	}
	times, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, a := range answerPattern.FindAllStringSubmatch(answers, -1) {
		if want[a[2]], err = strconv.Atoi(a[1]); err != nil {
			t.Fatal(err)
		}
	}
	send := func() map[string]int {
		got := map[string]int{}
		for range times {
			got[request(t, m[2], url+m[3], m[4])]++
		}
		return got
	}
	start := time.Now()
	got := send()
	if strings.Contains(m[5], "once the charges have arrived") {
		testenv.Eventually(t, 10*time.Second, func() bool { return maps.Equal(got, want) || maps.Equal(send(), want) }, sent+": "+answers)
		return
	}
	if _, least, found := strings.Cut(m[5], " in at least "); found {
		if d, err := time.ParseDuration(least); err != nil || time.Since(start) < d {
			t.Errorf("%s took %v (%v)", sent, time.Since(start), err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: answers %v, want %s", sent, got, answers)
	}
}

// request returns the status of the answer to a request with headers separated by
// semicolons.
func request(t *testing.T, method, url, headers string) string {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for header := range strings.SplitSeq(headers, "; ") {
		if name, value, found := strings.Cut(header, ": "); found {
			req.Header.Set(name, tokenPattern.ReplaceAllStringFunc(value, func(claims string) string {
				return token(t, tokenPattern.FindStringSubmatch(claims)[1])
			}))
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return strconv.Itoa(resp.StatusCode)
}

// token returns a JWT with claims such as "plan=free,sub=ann", signed with the key of
// the document.
func token(t *testing.T, claims string) string {
	t.Helper()
	key := regexp.MustCompile(`"k": "([^"]+)"`).FindStringSubmatch(readDoc(t, recipesDoc))
	if key == nil {
		t.Fatal("the document has no key")
	}
	secret, err := base64.RawURLEncoding.DecodeString(key[1])
	if err != nil {
		t.Fatal(err)
	}
	payload := map[string]string{"iss": "https://shop.example.org"}
	for claim := range strings.SplitSeq(claims, ",") {
		name, value, _ := strings.Cut(claim, "=")
		payload[name] = value
	}
	body, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","kid":"try","typ":"JWT"}`)) + "." + encode(body)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}
