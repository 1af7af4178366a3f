package docs_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
)

const recipesDoc = "docs/recipes.md"

// A recipe is a section of the document with rules, for a gateway.
type recipe struct {
	name, domain string
	rules        string
	envoy        map[string]any // fields of the HttpConnectionManager
	sent         *part          // the table of requests and their answers
}

// recipes returns the recipes in the document, of which Istio's has its YAML in files. The
// others are folders, which the test of tools/demo plays.
func recipes(t *testing.T) (all []*recipe) {
	t.Helper()
	for _, p := range parts(t, recipesDoc) {
		if len(all) == 0 || all[len(all)-1].name != p.heading {
			all = append(all, &recipe{name: p.heading})
		}
		last := all[len(all)-1]
		switch {
		case p.lang == "yaml" && strings.HasPrefix(p.text, "domain:"):
			last.rules = p.text
		case p.lang == "yaml":
			last.envoy = parseYAML(t, p)
		case p.isTable() && p.rows[0][0] == "sent":
			last.sent = p
		}
	}
	all = slices.DeleteFunc(all, func(r *recipe) bool { return r.sent == nil })
	if len(all) != 2 || all[1].name != "Istio" {
		t.Fatalf("%s has %d recipes with requests, want those of Envoy Gateway and Istio", recipesDoc, len(all))
	}
	all[1].rules = readDoc(t, "deploy/gateways/istio/rules.yaml")
	all[1].envoy = patched(t, &part{text: readDoc(t, "deploy/gateways/istio/envoyfilter.yaml")})
	for _, r := range all {
		r.domain = parseYAML(t, &part{text: r.rules})["domain"].(string)
	}
	return all
}

// frame is Envoy's configuration of a recipe, whose routes and domain are replaced.
func frame(t *testing.T) map[string]any {
	t.Helper()
	return parseYAML(t, &part{text: readDoc(t, "deploy/recipes/routes/envoy.yaml")})
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

// TestRecipes serves the rules of these recipes, starts one Envoy with a listener for
// each, sends the requests of its table, and compares the answers.
func TestRecipes(t *testing.T) {
	all := recipes(t)
	folder := filepath.Join(t.TempDir(), "rules")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		writeFile(t, filepath.Join(folder, strings.ReplaceAll(r.domain, "/", "-")+".yaml"), r.rules)
	}
	rls := serve(t, []string{"BACKEND_TYPE=memory", "RUNTIME_ROOT=" + filepath.Dir(folder), "RUNTIME_APPDIRECTORY=rules", "RUNTIME_WATCH_ROOT=false"})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	config, err := yaml.Marshal(envoyOf(t, frame(t), all))
	if err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, strings.NewReplacer(
		"port_value: 8000", "port_value: 0",
		"port_value: 8090", "port_value: "+port(upstream.Listener.Addr().String()),
		"port_value: 8081", "port_value: "+port(rls.grpc),
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
		})
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

var (
	sentPattern   = regexp.MustCompile("^`(\\d+) ([A-Z]+) (\\S+) ?([^`]*)`(.*)$")
	answerPattern = regexp.MustCompile(`(\d+) × (\d+)`)
)

// play sends the requests of a row one after the other, such as
// "`2 GET /path x-user: ann; x-plan: free`", and compares the numbers of each status
// with the answers, such as "1 × 200, 1 × 429".
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
	got := map[string]int{}
	for range times {
		got[request(t, m[2], url+m[3], m[4])]++
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
			req.Header.Set(name, value)
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
