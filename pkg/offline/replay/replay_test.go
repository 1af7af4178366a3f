package replay_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline/replay"
)

const shop = `
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`

func load(t testing.TB, text string) *descriptors.Tree {
	t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "shop.yaml", Content: []byte(text)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func template(t testing.TB, text string) replay.Template {
	t.Helper()
	made, err := replay.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func mapping(t testing.TB, texts ...string) replay.Mapping {
	t.Helper()
	m := replay.Mapping{Domain: "shop", Time: template(t, "%start_time%")}
	for _, text := range texts {
		d, err := replay.ParseDescriptor(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

// play replays logs and returns the result, and the malformed lines.
func play(t testing.TB, o replay.Options, logs ...string) (*replay.Result, []string) {
	t.Helper()
	var malformed []string
	o.Malformed = func(file string, line int64, why error) {
		malformed = append(malformed, fmt.Sprintf("%s:%d: %v", file, line, why))
	}
	r := replay.New(o)
	for i, text := range logs {
		if err := r.Log(fmt.Sprint("log", i), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	return r.Result(), malformed
}

// summary is what the result says of its rules, a line each.
func summary(rules []*replay.Rule) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "%s:%d %s %d/%d", r.File, r.Line, r.Rule, r.Denied, r.Requests)
		if r.FirstDenial != nil {
			fmt.Fprintf(&b, " %s", r.FirstDenial.Format("15:04:05"))
		}
		for _, k := range r.Top {
			fmt.Fprintf(&b, " %s %d", descriptors.Pairs(k.Entries), k.Denied)
		}
		for _, h := range r.Hourly {
			fmt.Fprintf(&b, " %s=%d/%d", h.Hour.Format("15h"), h.Denied, h.Requests)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

func TestAccessLog(t *testing.T) {
	line := func(at, address string) string {
		return fmt.Sprintf(`{"start_time":"2026-11-21T%sZ","downstream_remote_address":%q,"path":"/x"}`+"\n", at, address)
	}
	log := line("09:59:58", "10.0.0.1:1") + line("09:59:58.5", "10.0.0.1:2") + "\n" + line("09:59:57", "10.0.0.1:3") +
		line("10:00:00", "10.0.0.1:4") + line("10:00:01", "[2001:db8::1]:5")
	got, malformed := play(t, replay.Options{Rules: load(t, shop), Mapping: mapping(t, "remote_address=%downstream_remote_address%", "path=%path%")}, log[:100], "", log)
	if len(malformed) != 1 || !strings.HasPrefix(malformed[0], "log0:2: not a JSON object") { // the cut line
		t.Errorf("malformed: %v", malformed)
	}
	if got.Lines != 7 || got.Requests != 6 || got.Malformed != 1 || got.From.Format("15:04:05") != "09:59:58" || got.To.Format("15:04:05") != "10:00:01" {
		t.Errorf("got %+v", got)
	}
	expect(t, "rules", summary(got.Rules), `shop.yaml:4 shop.remote_address 2/6 09:59:58 remote_address=10.0.0.1 2 09h=2/4 10h=0/2
shop.yaml:5 shop.path 1/6 09:59:58 path=/x 1 09h=1/4 10h=0/2
shop.yaml:6 shop.trial 0/0
`)
}

// line is a line of an access log.
func line(at string) string {
	return fmt.Sprintf(`{"start_time":%q,"downstream_remote_address":"10.0.0.1:1"}`+"\n", at)
}

// hours are lines at each minute of the hours from and to-1 of a day.
func hours(from, to int) string {
	var b strings.Builder
	for minute := from * 60; minute < to*60; minute++ {
		b.WriteString(line(fmt.Sprintf("2026-11-21T%02d:%02d:00Z", minute/60, minute%60)))
	}
	return b.String()
}

// Files in any order and lines with a wrong time change no decision about other lines, and
// are told.
func TestOrderOfLines(t *testing.T) {
	const far, past = "2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z"
	const sixHours = "from 00:00:00 to 05:59:00"
	for _, test := range []struct {
		name string
		logs []string
		want string
	}{
		{"in order", []string{hours(0, 3), hours(3, 6)}, "0 back 0s, 0 ahead 0s, 0 denied, " + sixHours},
		{"newest first", []string{hours(4, 6), hours(2, 4), "", hours(0, 2)}, "0 back 0s, 0 ahead 0s, 0 denied, " + sixHours},
		{"no file has a line", []string{"", "no\n"}, "0 back 0s, 0 ahead 0s, 0 denied"},
		{"a line of the far future", []string{hours(0, 3) + line(far) + "\n" + hours(3, 6)}, "0 back 0s, 1 ahead 632133h1m0s, 0 denied, " + sixHours},
		{"at a file's end", []string{hours(3, 6), hours(0, 3) + line(far)}, "0 back 0s, 1 ahead 632133h1m0s, 0 denied, " + sixHours},
		{"first of all", []string{hours(3, 6), line(far) + line(far) + hours(0, 3)}, "0 back 0s, 2 ahead 632136h0m0s, 1 denied, " + sixHours},
		{"last of all", []string{hours(0, 6) + line(far)}, "0 back 0s, 0 ahead 0s, 0 denied, from 00:00:00 to 00:00:00"},
		{"a line of the past", []string{hours(0, 3) + line(past) + hours(3, 6)}, "1 back 498674h59m0s, 0 ahead 0s, 0 denied, " + sixHours},
		{"after a break", []string{hours(0, 1) + hours(5, 6)}, "0 back 0s, 0 ahead 0s, 0 denied, " + sixHours},
		{"twice the same", []string{hours(0, 1), hours(0, 1)}, "59 back 59m0s, 0 ahead 0s, 59 denied, from 00:00:00 to 00:59:00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var names []string
			for i, text := range test.logs {
				names = append(names, filepath.Join(t.TempDir(), fmt.Sprint(i)))
				if err := os.WriteFile(names[i], []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := replay.New(replay.Options{
				Rules: load(t, shop), Mapping: mapping(t, "remote_address=%downstream_remote_address%"), Malformed: func(string, int64, error) {},
			})
			if err := r.Files(names); err != nil {
				t.Fatal(err)
			}
			result := r.Result()
			got := fmt.Sprintf("%d back %v, %d ahead %v, %d denied", result.Back.Lines, time.Duration(result.Back.By), result.Ahead.Lines, time.Duration(result.Ahead.By), result.Denied)
			if result.From != nil {
				got += fmt.Sprintf(", from %s to %s", result.From.Format("15:04:05"), result.To.Format("15:04:05"))
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct{ descriptor, line, want string }{
		{"path=%path%", `{"path":"/a"}`, "path=/a"},
		{"path=%req.path%", `{"req":{"path":"/a"}}`, "path=/a"},
		{"path=100%%-%n%", `{"n":12.50}`, "path=100%-12.50"},
		{"path=%ok%", `{"ok":true}`, "path=true"},
		{"path=%a b*%", `{"a b*":"x","a bc":"y"}`, "path=x"},
		{"path=%path%", `{"path":"-"}`, ""},
		{"path=%path%", `{"path":null}`, ""},
		{"path=%path%,q=%none%", `{"path":"/a"}`, ""},
		{"path", `{}`, "path"},
		{`{"path": "%a%,%b%"}`, `{"a":1,"b":2}`, "path=1,2"},
		{`[{"key": "path", "value": "%a%"}]`, `{"a":1}`, "path=1"},
	} {
		line := strings.Replace(c.line, "{", `{"start_time":1795253998.25,`, 1)
		line = strings.Replace(line, ",}", "}", 1)
		var all strings.Builder
		for range 4 {
			all.WriteString(line + "\n")
		}
		got, malformed := play(t, replay.Options{Rules: load(t, shop), Mapping: mapping(t, c.descriptor)}, all.String())
		top := ""
		if keys := got.Rules[1].Top; len(keys) > 0 {
			top = descriptors.Pairs(keys[0].Entries)
		}
		if top != c.want || len(malformed) > 0 || got.Lines != 4 || (c.want == "") != (got.Requests == 0) {
			t.Errorf("%s in %s: got %q, %d requests, %v", c.descriptor, line, top, got.Requests, malformed)
		}
	}
}

func TestHits(t *testing.T) {
	m := mapping(t, "path=%path%")
	m.Hits = template(t, "%tokens%")
	got, malformed := play(t, replay.Options{Rules: load(t, shop), Mapping: m}, `{"start_time":"1795253998","path":"a","tokens":3}
{"start_time":"1795253998","path":"a","tokens":0}
{"start_time":"1795253998","path":"a"}
{"start_time":"1795253998","path":"b","tokens":"4"}
{"start_time":"1795253998","path":"b","tokens":"x"}
`)
	expect(t, "rules", summary(got.Rules[1:2]), "shop.yaml:5 shop.path 2/4 09:39:58 path=a 1 path=b 1 09h=2/4\n")
	if !slices.Equal(malformed, []string{`log0:5: the hits are "x": want a whole number from 0 to 4294967295`}) {
		t.Errorf("malformed: %v", malformed)
	}
}

func TestAgainst(t *testing.T) {
	other := strings.Replace(strings.Replace(shop, "requests_per_unit: 2}", "requests_per_unit: 1}", 1), "requests_per_unit: 3}", "requests_per_unit: 9}", 1)
	line := `{"start_time":"2026-11-21T10:00:00Z","downstream_remote_address":"10.0.0.%d:1","path":"/x"}` + "\n"
	var log strings.Builder
	for _, n := range []int{1, 1, 2, 3} { // the third of the path, and the second of an address
		fmt.Fprintf(&log, line, n)
	}
	got, _ := play(t, replay.Options{Rules: load(t, shop), Against: load(t, other), Mapping: mapping(t, "remote_address=%downstream_remote_address%", "path=%path%")}, log.String())
	if got.Denied != 1 || got.Against.Denied != 1 || got.Against.NewlyDenied != 1 || got.Against.NewlyAllowed != 1 || got.Against.Rules[0].Denied != 1 {
		t.Errorf("got %+v against %+v", got, got.Against)
	}
}

// newly is what the result says of the keys that are newly denied, a line each.
func newly(keys []replay.NewKey) string {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %s %d\n", k.Rule, descriptors.Pairs(k.Entries), k.Denied)
	}
	return b.String()
}

func TestNewlyDenied(t *testing.T) {
	const free = `
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unlimited: true}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: trial, rate_limit: {unlimited: true}}
`
	const strict = `
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: remote_address, value: b, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`
	line := func(address, path string) string {
		return fmt.Sprintf(`{"start_time":"2026-11-21T10:00:00Z","downstream_remote_address":%q,"path":%q}`+"\n", address, path)
	}
	log := line("b", "/2") + line("c", "-") + line("c", "-") + line("a", "-") + line("b", "-") +
		line("d", "/2") // both sets of rules deny this path
	play := func(log string) *replay.Against {
		o := replay.Options{Rules: load(t, free), Against: load(t, strict), Mapping: mapping(t,
			"remote_address=%downstream_remote_address%", "path=%path%", "trial=%path%", "remote_address=%downstream_remote_address%")}
		got, _ := play(t, o, log)
		return got.Against
	}
	got := play(log)
	expect(t, "newly denied", newly(got.NewlyDeniedTop), `shop.remote_address remote_address=c 2
shop.remote_address_b remote_address=b 2
shop.path path=/2 1
shop.remote_address remote_address=a 1
`)
	if got.NewlyDenied != 5 {
		t.Errorf("%d requests are newly denied, want 5", got.NewlyDenied)
	}

	var many, want strings.Builder
	for n := range 30 {
		many.WriteString(line(fmt.Sprintf("%02d", 29-n), "-"))
		if n < 20 {
			fmt.Fprintf(&want, "shop.remote_address remote_address=%02d 1\n", n)
		}
	}
	expect(t, "the first 20", newly(play(many.String()).NewlyDeniedTop), want.String())
}

// A key that is denied most is a counter: ids of reservations and values that share one are not
// told apart.
func TestCountersDeniedMost(t *testing.T) {
	const rules = `
domain: shop
descriptors:
  - key: user
    descriptors: [{key: id, rate_limit: {unit: hour, requests_per_unit: REQUESTS, reserve: true}}]
  - {key: path, value: /a*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: REQUESTS}}
`
	log := ""
	for i := range 6 {
		log += fmt.Sprintf(`{"start_time":"2026-11-21T10:00:00Z","user":"u%d","id":"%d","path":"/a/%d"}`+"\n", i%2, i, i)
	}
	got, _ := play(t, replay.Options{
		Rules: load(t, strings.ReplaceAll(rules, "REQUESTS", "1")), Against: load(t, strings.ReplaceAll(rules, "REQUESTS", "0")),
		Mapping: mapping(t, "user=%user%,id=%id%", "path=%path%"),
	}, log)
	expect(t, "denied most", summary(got.Rules), `shop.yaml:5 shop.user.id 4/6 10:00:00 user=u0,id 2 user=u1,id 2 10h=4/6
shop.yaml:6 shop.path_/a* 5/6 10:00:00 path=/a* 5 10h=5/6
`)
	expect(t, "newly denied", newly(got.Against.NewlyDeniedTop), `shop.path_/a* path=/a* 1
shop.user.id user=u0,id 1
`)
}

// However many keys are newly denied, the busy ones are found.
func TestManyNewlyDenied(t *testing.T) {
	const rule = "domain: shop\ndescriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: %s}}]\n"
	const busy, rounds, others = 20, 1000, 250 // other keys of each round
	m := mapping(t, "remote_address=%downstream_remote_address%")
	r := replay.New(replay.Options{Rules: load(t, fmt.Sprintf(rule, "1000000")), Against: load(t, fmt.Sprintf(rule, "0")), Mapping: m})
	var log strings.Builder
	for round := range rounds {
		for n := range busy + others {
			key := fmt.Sprintf("busy%02d", n)
			if n >= busy {
				key = fmt.Sprintf("%d-%d", round, n)
			}
			fmt.Fprintf(&log, `{"start_time":"2026-11-21T10:00:00Z","downstream_remote_address":%q}`+"\n", key)
		}
	}
	if err := r.Log("log", strings.NewReader(log.String())); err != nil {
		t.Fatal(err)
	}
	got := r.Result().Against
	if len(got.NewlyDeniedTop) != busy {
		t.Fatalf("got %d keys, want %d", len(got.NewlyDeniedTop), busy)
	}
	for i, k := range got.NewlyDeniedTop {
		if want := fmt.Sprintf("busy%02d", i); k.Entries[0].Value != want || k.Denied != rounds {
			t.Errorf("row %d: got %s %d, want %s %d", i, k.Entries[0].Value, k.Denied, want, rounds)
		}
	}
}

func TestShadow(t *testing.T) {
	line := `{"start_time":"2026-11-21T10:00:00Z","x":"1"}` + "\n"
	got, _ := play(t, replay.Options{Rules: load(t, shop), Mapping: mapping(t, "trial=%x%")}, strings.Repeat(line, 3))
	if r := got.Rules[2]; got.Denied != 0 || r.Denied != 0 || r.ShadowDenied != 2 || len(r.Top) != 1 {
		t.Errorf("got %+v", r)
	}
}

// A limit that is watched denies nothing, and shows what it would have denied.
func TestWatchedLimit(t *testing.T) {
	line := `{"start_time":"2026-11-21T10:00:00Z","x":"1"}` + "\n"
	tried := load(t, "domain: shop\ndescriptors: [{key: x, rate_limits: [{unit: hour, requests_per_unit: 4}, {unit: hour, requests_per_unit: 1, shadow_mode: true}]}]")
	got, _ := play(t, replay.Options{Rules: tried, Mapping: mapping(t, "x=%x%")}, strings.Repeat(line, 5))
	if r := got.Rules[0]; got.Denied != 1 || r.Denied != 1 || r.ShadowDenied != 3 || r.Top[0].Denied != 4 {
		t.Errorf("got %+v", r)
	}
}

func TestDecisionLog(t *testing.T) {
	line := `{"@timestamp":"2026-11-21T10:00:0%d.5Z","level":"info","@message":"decision","domain":"shop","entries":[{"key":"path","value":"/x"}],"decision":"allowed","rule":"shop.path","hits":2}` + "\n"
	log := `{"@timestamp":"2026-11-21T10:00:00Z","level":"info","@message":"listening"}` + "\n" +
		fmt.Sprintf(line, 1) + fmt.Sprintf(line, 2) +
		`{"@timestamp":"2026-11-21T10:00:00Z","level":"info","@message":"decision","decision":"allowed"}` + "\n"
	got, malformed := play(t, replay.Options{Rules: load(t, shop), Mapping: replay.Mapping{Time: template(t, "%start_time%")}}, log)
	if got.Lines != 4 || got.Requests != 2 || got.Denied != 1 || len(malformed) > 0 {
		t.Errorf("got %+v, %v", got, malformed)
	}
}

// Texts that are not UTF-8 are read as the decision log has them, and shown in its form.
func TestDecisionLogOfAnyText(t *testing.T) {
	line := func(entry string) string {
		return `{"@timestamp":"2026-11-21T10:00:01Z","@message":"decision","domain":"shop","entries":[{"key":"x",` + entry + `}],"hits":1}` + "\n"
	}
	rules := load(t, "domain: shop\ndescriptors: [{key: x, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	raw, other := line(`"value":"ann\\xff","raw":"YW5u/w=="`), line(`"value":"ann\\xff"`)
	got, malformed := play(t, replay.Options{Rules: rules}, raw+raw+raw+other+other+line(`"value":"ann","raw":"a"`))
	if got.Denied != 3 || len(malformed) != 1 || !strings.Contains(malformed[0], "raw or raw_key in base64") {
		t.Fatalf("got %+v, %q", got, malformed)
	}
	const want = `[{"entries":[{"key":"x","value":"ann\\xff","raw":"YW5u/w=="}],"denied":2},{"entries":[{"key":"x","value":"ann\\xff"}],"denied":1}]`
	if top, err := json.Marshal(got.Rules[0].Top); err != nil || string(top) != want {
		t.Errorf("got %s, %v, want %s", top, err, want)
	}
	var text strings.Builder
	if err := got.Text(&text); err != nil || !strings.Contains(text.String(), `[{"key":"x","value":"ann\\xff","raw":"YW5u/w=="}]`) || !strings.Contains(text.String(), "  x=ann\\xff\n") {
		t.Errorf("got %s, %v", text.String(), err)
	}
}

func TestMalformed(t *testing.T) {
	_, malformed := play(t, replay.Options{Rules: load(t, shop), Mapping: mapping(t, "path=%path%")},
		"no\n[1]\n{\"path\":\"x\"}\n{\"path\":\"x\",\"start_time\":\"yesterday\"}\n"+strings.Repeat("x", 3<<20)+"\n{\"start_time\":1,\"path\":\"x\"}")
	expect(t, "malformed", strings.Join(malformed, "\n"), `log0:1: not a JSON object
log0:2: not a JSON object
log0:3: no field start_time with the time
log0:4: the field start_time has no time: want RFC 3339 or seconds since 1970
log0:5: not a JSON object`)
	_, malformed = play(t, replay.Options{Rules: load(t, shop), Mapping: replay.Mapping{Time: template(t, "%start_time%")}}, "{\"path\":1}\n")
	if len(malformed) != 1 || !strings.Contains(malformed[0], "no --descriptor") {
		t.Errorf("got %v", malformed)
	}
}

func TestTemplatesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"path=%x":     "percent sign without a partner",
		"path=%a..b%": "empty name",
		"=x":          "a key is empty",
		"a=1,,b=2":    "a key is empty",
	} {
		if _, err := replay.ParseDescriptor(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"n", "1.5", "%%", "-1", "%n"} {
		if _, err := replay.ParseHits(text); err == nil {
			t.Errorf("hits %q were taken", text)
		}
	}
	for _, text := range []string{"", "%", "%%", "a%b", "a..b"} {
		if _, err := replay.ParseField(text); err == nil {
			t.Errorf("the field %q was taken", text)
		}
	}
}

// Without requests the document has no times and no null lists.
func TestEmptyDocument(t *testing.T) {
	got, _ := play(t, replay.Options{Rules: load(t, shop), Mapping: mapping(t, "path=%path%")})
	text, err := json.Marshal(got)
	if err != nil || !strings.HasPrefix(string(text), `{"lines":0,"requests":0,"malformed":0,"denied":0,"from":null,"to":null,"seconds":0,"rules":[{"rule":"shop.remote_address","file":"shop.yaml","line":4,"requests":0,"denied":0,"share":0,"first_denial":null,"top":[],"hourly":[]}`) {
		t.Errorf("%v\n%s", err, text)
	}
}

func BenchmarkReplay(b *testing.B) {
	var log strings.Builder
	const lines = 100_000
	for i := range lines {
		fmt.Fprintf(&log, `{"start_time":"2026-11-21T10:%02d:%02d.%03dZ","method":"GET","path":"/x/%d","response_code":200,"user_agent":"curl/8.5.0","upstream_service_time":"11","downstream_remote_address":"10.0.%d.%d:1234"}`+"\n",
			i*60/lines, i*3600/lines%60, i%1000, i%50, i%200, i%250)
	}
	o := replay.Options{Rules: load(b, shop), Mapping: mapping(b, "remote_address=%downstream_remote_address%", "path=%path%")}
	for b.Loop() {
		play(b, o, log.String())
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
