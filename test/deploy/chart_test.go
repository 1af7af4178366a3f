package deploy_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestChartLints with every set of values, warnings included.
func TestChartLints(t *testing.T) {
	helm := tool(t, "helm")
	for _, values := range entries(t, valueSets) {
		if _, err := run(root, helm, "lint", "--strict", "--kube-version", kubernetes+".0", chart, "--values", filepath.Join(valueSets, values)); err != nil {
			t.Error(err)
		}
	}
}

// TestChartRefusesWrongValues names the value that is wrong.
func TestChartRefusesWrongValues(t *testing.T) {
	helm := tool(t, "helm")
	for _, c := range []struct{ set, says string }{
		{"replicas=2", "replicas"}, // with counters in memory
		{"autoscaling.enabled=true", "autoscaling"},
		{"backend.type=postgres", "backend/type"},
		{"backend.type=redis,backend.redis.url=", "backend/redis/url"},
		{"backend.redis.type=RING", "backend/redis/type"},
		{"backend.memcache.hosts=memcached", "backend/memcache/hosts"},
		{"drainPeriodSeconds=3s", "drainPeriodSeconds"},
		{"settings.log_level=info", "settings"},
		{"settings.GRPC_PORT=9000", "settings"}, // the probes' is 8081
		{"image.digest=latest", "image/digest"},
		{"replica=3", "replica"},
		{"podDisruptionBudget.maxUnavailable=half", "podDisruptionBudget/maxUnavailable"},
		{"metrics.enabled=false,metrics.serviceMonitor.enabled=true", "serviceMonitor"},
	} {
		out, err := run(root, helm, "template", "test", chart, "--kube-version", kubernetes+".0", "--set", c.set)
		if err == nil {
			t.Errorf("%s is taken:\n%s", c.set, out)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.set, err)
		}
	}
}

// TestChartReachesTheStore: the policy lets pods out to the ports of the store.
func TestChartReachesTheStore(t *testing.T) {
	for values, ports := range map[string][]string{
		"redis":          {"6380"},
		"redis-cluster":  {"6379"},
		"redis-sentinel": {"26379", "6379"},
		"memcached":      {"11211"},
	} {
		r := release(t, values)
		for _, port := range ports {
			if !regexp.MustCompile(`(?s)egress:.*\{port: ` + port + `\}`).MatchString(r.yaml) {
				t.Errorf("%s: no way out to port %s", values, port)
			}
		}
	}
}

// TestChartRollsPodsForSettingsOnly: changed settings make new pods, changed
// rules reach those that run.
func TestChartRollsPodsForSettingsOnly(t *testing.T) {
	helm := tool(t, "helm")
	template := func(set string) string {
		out, err := run(root, helm, "template", "test", chart, "--kube-version", kubernetes+".0", "--show-only", "templates/deployment.yaml", "--set", set)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := template("fullnameOverride=test-rls")
	if template("rules.other=domain: other") != before {
		t.Error("other rules make another Deployment")
	}
	if template("settings.LOG_LEVEL=debug") == before {
		t.Error("other settings make no other Deployment")
	}
}

// TestChartProbesWithoutTLS: the kubelet's gRPC probes cannot follow when gRPC
// is served over TLS.
func TestChartProbesWithoutTLS(t *testing.T) {
	c := release(t, "everything").one(t, "Deployment").Spec.Template.Spec.ours(t)
	for _, p := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p.GRPC != nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthcheck" || p.HTTPGet.Port != "http" {
			t.Errorf("%+v", p)
		}
	}
}

// TestChartReadme explains every value.
func TestChartReadme(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	readme := read(t, chart+"/README.md")
	explained := 0
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if m, ok := value.(map[string]any); ok && len(m) > 0 && !strings.Contains(readme, "| `"+path+"` |") {
			for name, value := range m {
				walk(strings.TrimPrefix(path+"."+name, "."), value)
			}
			return
		}
		explained++
		if !strings.Contains(readme, "| `"+path+"` |") {
			t.Errorf("README.md does not explain %s", path)
		}
	}
	walk("", values)
	if rows := strings.Count(readme, "\n| `"); rows != explained {
		t.Errorf("README.md explains %d values, there are %d", rows, explained)
	}
}
