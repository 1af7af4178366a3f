package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
)

// traffic has a rule for each label value that the dashboard asks for.
const traffic = `
domain: traffic
plans: {free: {unit: hour, requests_per_unit: 2, thresholds: [{at: 50%}]}}
descriptors:
  - key: limited
    rate_limit: {plan: free}
  - key: bursts
    rate_limit: {unit: hour, requests_per_unit: 2, strategy: token_bucket, burst: 2}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: open
    rate_limit: {unit: hour, requests_per_unit: 2, on_error: allow}
`

// scraped has the metrics of three programs: one counts in memory and one in
// Redis, which is gone at the end, both after some traffic; the management server
// of the third is away.
// They carry the labels of a target in Kubernetes.
var scraped struct {
	sync.Mutex
	series []series
}

// series is one line of /metrics.
type series struct {
	name   string
	labels string // as in the line, with the labels of the target
	value  float64
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$`)
	labelName  = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
)

func scrape(t *testing.T) []series {
	t.Helper()
	scraped.Lock()
	defer scraped.Unlock()
	if scraped.series != nil {
		return scraped.series
	}
	redis := testenv.Redis(t)
	for name, env := range map[string]map[string]string{
		"memory": {"BACKEND_TYPE": "memory", "TOP_METRIC": "10"},
		"redis":  {"BACKEND_TYPE": "redis", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": redis.Addr},
		"gateway": {
			"BACKEND_TYPE": "memory", "CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID": "ns/gateway",
			"CONFIG_GRPC_XDS_SERVER_URL": fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		},
	} {
		disk := t.TempDir()
		write(t, filepath.Join(disk, "rules", "traffic.yaml"), traffic)
		maps.Copy(env, map[string]string{"RUNTIME_ROOT": disk, "RUNTIME_APPDIRECTORY": "rules", "RUNTIME_WATCH_ROOT": "false", "USE_PROMETHEUS": "true"})
		p := start(t, []string{"rls", "serve"}, env)
		denied := 0
		for _, key := range []string{"limited", "bursts", "shadow", "unknown"} {
			for range 4 {
				if p.hit(t, "traffic", key, "x") == http.StatusTooManyRequests {
					denied++
				}
			}
		}
		if denied != 4 && name != "gateway" {
			t.Errorf("%s: %d of the hits are denied", name, denied)
		}
		if name == "redis" {
			redis.Kill()
			if code := p.hit(t, "traffic", "open", "x"); code != http.StatusOK {
				t.Errorf("without Redis the policy allow answers %d", code)
			}
		}
		for line := range strings.Lines(p.get("http://" + p.metrics + "/metrics")) {
			m := sampleLine.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue // a comment
			}
			value, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			target := fmt.Sprintf(`namespace="ns",pod=%q,instance=%q,job="rls"`, name, p.metrics)
			if m[2] != "" {
				target = m[2] + "," + target
			}
			scraped.series = append(scraped.series, series{m[1], target, value})
		}
	}
	if len(scraped.series) < 100 {
		t.Fatalf("only %d series", len(scraped.series))
	}
	return scraped.series
}

// labelsOf returns the names of a metric's labels, and whether there is such a
// metric.
func labelsOf(all []series, metric string) (labels map[string]bool, ok bool) {
	labels = map[string]bool{}
	for _, s := range all {
		if s.name == metric {
			ok = true
			for _, m := range labelName.FindAllStringSubmatch(s.labels, -1) {
				labels[m[1]] = true
			}
		}
	}
	return labels, ok
}

// query is a query of the dashboard or of an alert.
type query struct {
	where, expr, legend string
}

var (
	metricName = regexp.MustCompile(`\b(?:rls|ratelimit|process|go|up)_\w+`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	legendName = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}|\$labels\.(\w+)`)
)

// check fails the test if a query has a metric or a label that does not exist.
func (q query) check(t *testing.T, all []series) {
	t.Helper()
	metrics := metricName.FindAllString(q.expr, -1)
	if len(metrics) == 0 {
		t.Errorf("%s: no metric of ours in %s", q.where, q.expr)
	}
	known := map[string]bool{}
	for _, metric := range metrics {
		labels, ok := labelsOf(all, metric)
		if !ok {
			t.Errorf("%s: there is no metric %s", q.where, metric)
		}
		maps.Copy(known, labels)
	}
	var labels []string
	for _, m := range matcher.FindAllStringSubmatch(q.expr, -1) {
		labels = append(labels, m[1])
	}
	for _, m := range grouping.FindAllStringSubmatch(q.expr, -1) {
		labels = append(labels, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, m := range legendName.FindAllStringSubmatch(q.legend, -1) {
		labels = append(labels, m[1]+m[2])
	}
	for _, label := range labels {
		if !known[label] {
			t.Errorf("%s: %v have no label %q", q.where, metrics, label)
		}
	}
}

// runbook is the address of docs/runbook.md in the manifests, which the chart
// replaces.
const runbook = "https://example.org/rls/docs/runbook.md"

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// alerts returns the groups of the PrometheusRule as a file that Prometheus reads,
// and its rules.
func alerts(t *testing.T) (text string, rules []alertRule) {
	t.Helper()
	r := release(t, "monitoring")
	out, err := yaml.Marshal(map[string]any{"groups": r.one(t, "PrometheusRule").Spec.Groups})
	if err != nil {
		t.Fatal(err)
	}
	return string(out), alertsOf(t, r)
}

func alertsOf(t *testing.T, r rendering) (rules []alertRule) {
	t.Helper()
	out, err := yaml.Marshal(r.one(t, "PrometheusRule").Spec.Groups)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct{ Rules []alertRule }
	if err := yaml.Unmarshal(out, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// TestAlerts runs promtool's unit tests of the alerts. Each alert has a test in
// which it fires, one in which it does not, and a section in the runbook.
func TestAlerts(t *testing.T) {
	text, rules := alerts(t)
	tests := read(t, "test/deploy/testdata/alerts.yaml")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), text)
	write(t, filepath.Join(dir, "alerts.yaml"), tests)
	promtool := tool(t, "promtool")
	if _, err := run(dir, promtool, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := run(dir, promtool, "test", "rules", "alerts.yaml"); err != nil {
		t.Error(err)
	}

	var file struct {
		Tests []struct {
			InputSeries []struct{ Series string } `yaml:"input_series"`
			Alerts      []struct {
				Alertname string
				Exp       []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(tests), &file); err != nil {
		t.Fatal(err)
	}
	var sections []string // of the runbook, in the order of the alerts
	fires, silent := map[string]bool{}, map[string]bool{}
	all := scrape(t)
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Exp) > 0 {
				fires[a.Alertname] = true
			} else {
				silent[a.Alertname] = true
			}
		}
		for _, s := range test.InputSeries {
			query{where: "testdata/alerts.yaml", expr: s.Series}.check(t, all)
		}
	}
	for _, r := range rules {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: no test in which it fires and one in which it does not", r.Alert)
		}
		legend := strings.Join(slices.Collect(maps.Values(r.Annotations)), " ")
		legend = strings.ReplaceAll(legend, "{{ end }}", "") // a keyword of the template, not a label
		query{where: r.Alert, expr: r.Expr, legend: legend}.check(t, all)
		if want := runbook + "#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		sections = append(sections, r.Alert)
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: summary %q, severity %q", r.Alert, r.Annotations["summary"], r.Labels["severity"])
		}
	}
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		headings = append(headings, m[1])
	}
	if !slices.Equal(headings, sections) {
		t.Errorf("docs/runbook.md has the sections %v, want one for each alert: %v", headings, sections)
	}
}

type dashboard struct {
	Panels []struct {
		Type, Title, Description string
		FieldConfig              struct {
			Defaults struct {
				Color      struct{ Mode string }
				Thresholds struct {
					Steps []struct {
						Color string
						Value *float64
					}
				}
			}
		}
		Targets []struct {
			Expr   string
			Legend string `json:"legendFormat"`
		}
	}
	Annotations struct {
		List []struct {
			Name, Expr  string
			TitleFormat string
		}
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

// variables replaces Grafana's variables in a query.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m", "$namespace", ".*", "$domain", ".*", "$rule", ".*")

// queries returns the dashboard's queries with their legends.
func (d *dashboard) queries() (all []query) {
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{p.Title, variables.Replace(target.Expr), target.Legend})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{a.Name, variables.Replace(a.Expr), a.TitleFormat})
	}
	return all
}

func openDashboard(t *testing.T) *dashboard {
	t.Helper()
	r := release(t, "monitoring")
	found := r.all("ConfigMap")
	i := slices.IndexFunc(found, func(o object) bool { return o.Data["rls.json"] != "" })
	if i < 0 {
		t.Fatalf("%s has no dashboard", r.name)
	}
	d := new(dashboard)
	if err := json.Unmarshal([]byte(found[i].Data["rls.json"]), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboardNames: the metrics and labels of its queries exist.
func TestDashboardNames(t *testing.T) {
	all, d := scrape(t), openDashboard(t)
	queries := d.queries()
	if len(queries) < 20 {
		t.Errorf("only %d queries", len(queries))
	}
	labelValues := regexp.MustCompile(`label_values\((.*), (\w+)\)`)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var asks struct{ Query string }
		if err := json.Unmarshal(v.Query, &asks); err != nil {
			t.Fatal(err)
		}
		m := labelValues.FindStringSubmatch(asks.Query)
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, asks.Query)
			continue
		}
		queries = append(queries, query{"variable " + v.Name, variables.Replace(m[1]), "{{" + m[2] + "}}"})
	}
	for _, q := range queries {
		q.check(t, all)
		if strings.Contains(q.expr, "$") {
			t.Errorf("%s: an unknown variable in %s", q.where, q.expr)
		}
	}
}

// TestDashboardShowsSomething: with promtool, each query has a result on the
// metrics of our program, all made to grow.
func TestDashboardShowsSomething(t *testing.T) {
	type input struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type expr struct {
		Expr     string   `yaml:"expr"`
		EvalTime string   `yaml:"eval_time"`
		Samples  []sample `yaml:"exp_samples"`
	}
	type test struct {
		Interval string  `yaml:"interval"`
		Input    []input `yaml:"input_series"`
		Exprs    []expr  `yaml:"promql_expr_test"`
	}
	one := test{Interval: "30s"}
	for _, s := range scrape(t) {
		one.Input = append(one.Input, input{s.name + "{" + s.labels + "}", strconv.FormatFloat(s.value, 'f', -1, 64) + "+1x20"})
	}
	for _, q := range openDashboard(t).queries() {
		one.Exprs = append(one.Exprs, expr{"count(" + q.expr + ") > bool 0", "9m", []sample{{"{}", 1}}})
	}
	out, err := yaml.Marshal(map[string]any{"tests": []test{one}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "dashboard.yaml"), string(out))
	if _, err := run(dir, tool(t, "promtool"), "test", "rules", "dashboard.yaml"); err != nil {
		t.Error(err)
	}
}

// TestDashboardThresholds: a tile turns red at the value at which the alert fires
// that its description names. A tile whose value is neither good nor bad has one
// colour.
func TestDashboardThresholds(t *testing.T) {
	_, rules := alerts(t)
	red := map[string]string{} // by alert
	for _, r := range rules {
		if m := regexp.MustCompile(`(?:> ([\d.]+)|== (0))\s*$`).FindStringSubmatch(r.Expr); m != nil {
			red[r.Alert] = m[1] + m[2]
		}
	}
	compared := 0
	for _, p := range openDashboard(t).Panels {
		if p.Type != "stat" {
			continue
		}
		steps := p.FieldConfig.Defaults.Thresholds.Steps
		if mode := p.FieldConfig.Defaults.Color.Mode; mode == "fixed" && len(steps) == 0 {
			continue
		} else if mode != "thresholds" || len(steps) < 2 || steps[0].Value != nil {
			t.Errorf("%s: colour %s, thresholds %v", p.Title, mode, steps)
			continue
		}
		alert := regexp.MustCompile(`RLS\w+`).FindString(p.Description)
		at, fires := "", red[alert]
		switch last := steps[len(steps)-1]; {
		case last.Color == "red":
			at = strconv.FormatFloat(*last.Value, 'g', -1, 64)
			if strings.HasPrefix(p.Targets[0].Expr, "count(") {
				fires = map[string]string{"0": "1"}[fires] // one replica for which it fires
			}
		case steps[0].Color == "red": // everything below the second step
			at = map[float64]string{1: "0"}[*steps[1].Value]
		default:
			continue
		}
		compared++
		if at == "" || at != fires {
			t.Errorf("%s turns red at %q, and %s fires at %q", p.Title, at, alert, fires)
		}
	}
	if compared < 4 {
		t.Errorf("only %d tiles turn red", compared)
	}
}

// TestDashboardExplainsItself: each panel says what it shows.
func TestDashboardExplainsItself(t *testing.T) {
	for _, p := range openDashboard(t).Panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q: %q, %d queries", p.Title, p.Description, len(p.Targets))
		}
	}
}
