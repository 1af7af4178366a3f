package admin_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/top"
)

// anyTexts are texts that requests can have, and how people are shown them.
var anyTexts = map[string]string{
	"ann\xff": `ann\xff`, "\xff\\x": `\xff\\x`, "caf\xe9": `caf\xe9`, "\x80": `\x80`, "\xed\xa0\x80": `\xed\xa0\x80`,
	"\uFFFD": "\uFFFD", `ann\xff`: `ann\xff`, `a\b`: `a\b`, `a\b<&>`: `a\b<&>`,
}

const rulesForTexts = `domain: shop
descriptors:
- {key: user, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: "k*", detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`

// shownEntry is the JSON that documents have for an entry.
func shownEntry(t testing.TB, e descriptors.Entry) string {
	t.Helper()
	show := func(text string) string {
		shown, valid := anyTexts[strings.TrimPrefix(text, "k")], utf8.ValidString(text)
		if valid {
			return text
		}
		return text[:len(text)-len(strings.TrimPrefix(text, "k"))] + shown
	}
	fields := []string{`"key":` + quote(t, show(e.Key)), `"value":` + quote(t, show(e.Value))}
	if !utf8.ValidString(e.Key + e.Value) {
		fields = append(fields, `"raw":"`+base64.StdEncoding.EncodeToString([]byte(e.Value))+`"`)
	}
	if !utf8.ValidString(e.Key) {
		fields = append(fields, `"raw_key":"`+base64.StdEncoding.EncodeToString([]byte(e.Key))+`"`)
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func quote(t testing.TB, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(quoted)
}

// textRig is a rig whose process shows texts wherever it can.
type textRig struct {
	*rig
	metrics *metrics.Metrics
	logged  *bytes.Buffer
}

func startForTexts(t *testing.T, ratelimitKeys bool) textRig {
	t.Helper()
	logged := new(bytes.Buffer)
	log := slog.New(slog.NewJSONHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	measured, err := metrics.New(metrics.Options{MaxSeries: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	seen, heavy := denials.New(denials.Options{Keep: 100}), top.New(top.Options{Keys: 100, StoredKey: strings.Clone})
	measured.Limited(func(tell metrics.TellKey) {
		heavy.Table(top.Query{By: "denied", N: 100}).Tell(false, tell)
	})
	limits := service.New(service.Config{Store: newStore(t), RatelimitKeys: ratelimitKeys, Observers: []service.Observer{
		seen, heavy, measured.Observer(),
		metrics.NewDecisionLog(metrics.LogOptions{Share: 1, Denials: "all", Requests: 1000, Entries: true, Backend: "memory", Log: log}),
	}})
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rulesForTexts)}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits.SetTree(tree)
	measured.InForce(tree)
	r := start(t, listening{change: func(o *admin.Options) {
		o.Limits, o.Denials, o.Top, o.Memories = operate.New(limits, strings.Clone), seen, heavy, []admin.Memory{seen, heavy}
	}})
	return textRig{r, measured, logged}
}

// lost reports whether bytes of a document were replaced, as encoding/json does.
func lost(document string) bool {
	return !utf8.ValidString(document) || strings.Contains(document, `\ufffd`)
}

// count is the count of the only counter that /v1/get has for an entry in JSON.
func (r *rig) count(entry string) any {
	r.t.Helper()
	got := r.ask("POST", "/v1/get", body(entry), bearer(readToken))
	if got.code != 200 {
		r.t.Fatalf("%s: got %d %s", entry, got.code, got.text)
	}
	return got.json["descriptors"].([]any)[0].(map[string]any)["limits"].([]any)[0].(map[string]any)["count"]
}

func body(entry string) string {
	return `{"domain":"shop","descriptors":[{"entries":[` + entry + `]}]` + "}"
}

// A caller of any text is shown, found, looked at, granted hits and reset, and no other caller is.
func TestAnyTextIsShownAndTakenBack(t *testing.T) {
	for _, ratelimitKeys := range []bool{false, true} {
		for text := range anyTexts {
			for _, e := range []descriptors.Entry{{Key: "user", Value: text}, {Key: "k" + text, Value: "v"}} {
				t.Run(fmt.Sprintf("%q %v", e, ratelimitKeys), func(t *testing.T) { takeBack(t, startForTexts(t, ratelimitKeys), e) })
			}
		}
	}
}

func takeBack(t *testing.T, r textRig, e descriptors.Entry) {
	shown := shownEntry(t, e)
	plain := descriptors.Printable(e.Key) + "\x00" + descriptors.Printable(e.Value)
	key, value, _ := strings.Cut(plain, "\x00")
	other := `{"key":` + quote(t, key) + `,"value":` + quote(t, value) + `}` // what reads the same
	for range 3 {
		r.chargeEntry(e.Key, e.Value, 1)
	}
	r.chargeEntry("none\xff", "\xfe", 1)
	find := url.QueryEscape(value)
	if e.Value == "v" {
		find = url.QueryEscape(key)
	}
	rawFind := url.QueryEscape(e.Value)
	for _, path := range []string{
		"/v1/denials", "/v1/denials?q=" + find, "/v1/denials?q=" + rawFind, "/v1/top", "/v1/top?by=hits", "/v1/find?q=" + find, "/v1/find?q=" + rawFind,
	} {
		got := r.ask("GET", path, "", bearer(readToken))
		want := `"entries":[` + shown + "]"
		if got.code != 200 || !strings.Contains(got.text, want) || lost(got.text) {
			t.Errorf("%s: got %d %s, want %s", path, got.code, got.text, want)
		}
	}
	for _, path := range []string{"/v1/explain", "/v1/get"} {
		got := r.ask("POST", path, body(shown), bearer(readToken))
		if got.code != 200 || !strings.Contains(got.text, `"entries":[`+shown+"]") || !strings.Contains(got.text, `"remaining":0`) ||
			lost(got.text) {
			t.Errorf("%s: got %d %s", path, got.code, got.text)
		}
	}
	if n := r.count(shown); n != 3.0 {
		t.Errorf("counted %v, want 3", n)
	}
	if n := r.count(other); other != shown && n != 0.0 {
		t.Errorf("%s counted %v, want 0: it is another caller", other, n)
	}
	const unknown = `{"raw_key":"bm9uZf8=","raw":"/w=="}`
	if got := r.ask("POST", "/v1/get", body(unknown), bearer(readToken)); got.code != 404 || !strings.Contains(got.text, `no descriptor matches none\\xff=\\xff`) {
		t.Errorf("get of an unknown key: got %d %s", got.code, got.text)
	}
	grant := strings.TrimSuffix(body(shown), "}") + `,"hits":1}`
	if got := r.ask("POST", "/v1/grant", grant, bearer(writeToken)); got.code != 200 || got.json["changed"] != 1.0 {
		t.Errorf("grant: got %d %s", got.code, got.text)
	}
	if got := r.ask("GET", "/v1/grants", "", bearer(readToken)); got.code != 200 || strings.Count(got.text, `"rule"`) != 1 || lost(got.text) {
		t.Errorf("grants: got %d %s", got.code, got.text)
	}
	if got := r.ask("POST", "/v1/reset", body(shown), bearer(writeToken)); got.code != 200 || got.json["changed"] != 1.0 {
		t.Errorf("reset: got %d %s", got.code, got.text)
	}
	if n := r.count(shown); n != 0.0 {
		t.Errorf("after a reset %v are counted", n)
	}
	audit := r.ask("GET", "/v1/audit", "", bearer(readToken))
	if audit.code != 200 || strings.Count(audit.text, `"rule"`) != 2 || lost(audit.text) {
		t.Errorf("audit: got %s", audit.text)
	}
	r.metricsShow(e)
	r.logsShow(e)
	argumentIsTakenBack(t, e)
}

// metricsShow compares the labels of the metrics, in which a backslash is doubled again.
func (r textRig) metricsShow(e descriptors.Entry) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	all, _ := io.ReadAll(w.Body)
	label := func(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }
	key, value := descriptors.Printable(e.Key), descriptors.Printable(e.Value)
	for _, want := range []string{
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="` + label(key+"_"+value) + `"} 2`,
		`rls_top_denied{key="` + label(key+"="+value) + `",rule="`,
	} {
		if w.Code != 200 || !strings.Contains(string(all), want) {
			r.t.Errorf("no %s in %s", want, all)
		}
	}
}

// logsShow reads the lines of logs.
func (r textRig) logsShow(e descriptors.Entry) {
	r.t.Helper()
	logged := r.logged.String()
	pair := quote(r.t, descriptors.Printable(e.Key)+"="+descriptors.Printable(e.Value))
	var plain struct{ Entries []descriptors.Entry }
	lines := 0
	for line := range strings.Lines(logged) {
		if !utf8.ValidString(line) {
			r.t.Errorf("the line %q is not UTF-8", line)
		}
		if json.Unmarshal([]byte(line), &plain) == nil && slices.Equal(plain.Entries, []descriptors.Entry{e}) {
			lines++
		}
		plain.Entries = nil
	}
	if lines != 5 { // three decisions, two denials
		r.t.Errorf("%d lines have the entry: %s", lines, logged)
	}
	if html := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&"); !strings.Contains(logged, `"descriptors":`+html.Replace(pair)) {
		r.t.Errorf("no %s in %s", pair, logged)
	}
}

// argumentIsTakenBack reads the text that people copy.
func argumentIsTakenBack(t *testing.T, e descriptors.Entry) {
	t.Helper()
	argument := descriptors.Argument([]descriptors.Entry{e})
	if got, err := ask.ParseDescriptor(argument); err != nil || !slices.Equal(got, []descriptors.Entry{e}) || !utf8.ValidString(argument) {
		t.Errorf("%s is read as %q, %v", argument, got, err)
	}
}
