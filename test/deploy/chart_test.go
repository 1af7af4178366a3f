package deploy_test

import (
	"path/filepath"
	"regexp"
	"slices"
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
		{"settings.GRPC_PORT=9000", "settings.GRPC_PORT"}, // the probes' is 8081
		{"image.digest=latest", "image/digest"},
		{"replica=3", "replica"},
		{"podDisruptionBudget.maxUnavailable=half", "podDisruptionBudget/maxUnavailable"},
		{"metrics.enabled=false,metrics.serviceMonitor.enabled=true", "serviceMonitor"},
		{"metrics.enabled=false,metrics.prometheusRule.enabled=true", "prometheusRule"}, // RLSAbsent would fire for ever
		{"settings.REDIS_URL=redis:6380", "settings"},                                   // the network policy opens backend.redis.url's
		{"settings.REDIS_AUTH=secret", "settings"},                                      // a ConfigMap is no place for it
		{"settings.CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:secret", "settings"},
		{"backend.type=redis,backend.redis.url=redis://:secret@redis:6379", "backend/redis/url"},
		{"backend.type=redis,settings.REDIS_PERSECOND_URL=redis://:secret@redis:6379", "REDIS_PERSECOND_AUTH"},
		{"backend.type=memcache,backend.memcache.hosts=", "hosts"},
		{"existingRulesConfigMap=mine,rules.mine=domain: mine", "rules"},
		{"podLabels.app\\.kubernetes\\.io/name=other", "podLabels"}, // the selector's
		{"fullnameOverride=Limits", "fullnameOverride"},
		{"autoscaling=null", "autoscaling"},
		{"metrics.serviceMonitor=null", "serviceMonitor"},
	} {
		out, err := run(root, helm, "template", "test", chart, "--kube-version", kubernetes+".0", "--set", c.set)
		if err == nil {
			t.Errorf("%s is taken:\n%s", c.set, out)
		} else if _, message, _ := strings.Cut(err.Error(), "\n"); !strings.Contains(message, c.says) {
			t.Errorf("%s: %v", c.set, err)
		}
	}
}

// render is the chart with the default values but for some, each as --set
// takes it.
func render(t *testing.T, set ...string) rendering {
	t.Helper()
	args := []string{"template", "test", chart, "--kube-version", kubernetes + ".0"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	out, err := run(root, tool(t, "helm"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return rendering{strings.Join(set, ","), out, parse(t, out)}
}

// TestChartReachesTheStore: the policy lets pods out to the ports of the store,
// and to no others.
func TestChartReachesTheStore(t *testing.T) {
	for _, c := range []struct {
		from  rendering
		ports []string
	}{
		{release(t, "defaults"), nil},
		{release(t, "redis"), []string{"6380"}},
		{release(t, "redis-cluster"), []string{"6379"}},
		{release(t, "redis-sentinel"), []string{"6379", "26379"}},
		{release(t, "memcached"), []string{"11211"}},
		{render(t, "backend.type=redis", "backend.redis.url=redis.databases"), []string{"6379"}},
		{render(t, "backend.type=redis", "backend.redis.url=rediss://redis.databases:6380/3"), []string{"6380"}},
		{render(t, "backend.type=redis", "backend.redis.url=/run/redis.sock", "settings.REDIS_SOCKET_TYPE=unix"), nil},
		{render(t, "backend.type=redis", "settings.REDIS_PERSECOND=true", "settings.REDIS_PERSECOND_URL=seconds:6390"), []string{"6379", "6390"}},
		{render(t, "backend.type=redis", "settings.REDIS_PERSECOND=true", `settings.REDIS_PERSECOND_URL=seconds-0:6390\,seconds-1:6391`), []string{"6379", "6390", "6391"}},
		{render(t, "backend.type=redis", "backend.redis.url=redis:6380", "settings.REDIS_PERSECOND=true", `settings.REDIS_PERSECOND_URL=primary\,sentinel:26379`), []string{"6380", "6379", "26379"}},
		{render(t, "backend.type=redis", "settings.REDIS_PERSECOND=true"), []string{"6379"}}, // its default is a socket
		{render(t, "backend.type=redis", "settings.REDIS_PERSECOND=false", "settings.REDIS_PERSECOND_URL=seconds:6390"), []string{"6379"}},
		{render(t, "backend.type=memcache", "backend.memcache.hosts=", "settings.MEMCACHE_SRV=_memcached._tcp.memcached"), []string{"11211"}},
	} {
		_, egress, _ := strings.Cut(c.from.yaml, "egress:")
		egress, _, _ = strings.Cut(egress, "---")
		var ports []string
		for _, m := range regexp.MustCompile(`\{port: (\d+)\}`).FindAllStringSubmatch(egress, -1) {
			ports = append(ports, m[1])
		}
		if !slices.Equal(ports, c.ports) {
			t.Errorf("%s: ways out to %v, want %v", c.from.name, ports, c.ports)
		}
	}
}

// TestChartSettings reach the pods as they were written; those that would be
// empty or contradict others are left out.
func TestChartSettings(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	write(t, values, `settings: {TRACING_SAMPLING_RATE: 0.25, REQUEST_MAX_BYTES: 104857600, SHADOW_MODE: true, CACHE_KEY_PREFIX: "007", NEAR_LIMIT_RATIO: 1e-3}`)
	out, err := run(root, tool(t, "helm"), "template", "test", chart, "--kube-version", kubernetes+".0", "--values", values)
	if err != nil {
		t.Fatal(err)
	}
	r := rendering{"settings", out, parse(t, out)}
	env := r.environment(t, r.one(t, "Deployment").Spec.Template.Spec.ours(t))
	for name, want := range map[string]string{
		"TRACING_SAMPLING_RATE": "0.25", "REQUEST_MAX_BYTES": "104857600", "SHADOW_MODE": "true", "CACHE_KEY_PREFIX": "007", "NEAR_LIMIT_RATIO": "0.001",
	} {
		if env[name] != want {
			t.Errorf("%s=%s, want %s", name, env[name], want)
		}
	}

	r = render(t, "backend.type=memcache", "backend.memcache.hosts=", "settings.MEMCACHE_SRV=_memcached._tcp.memcached")
	if hosts, ok := r.environment(t, r.one(t, "Deployment").Spec.Template.Spec.ours(t))["MEMCACHE_HOST_PORT"]; ok {
		t.Errorf("MEMCACHE_HOST_PORT=%q beside MEMCACHE_SRV, which the program refuses", hosts)
	}
}

// TestChartTakesNoValues: what has nothing below it is null.
func TestChartTakesNoValues(t *testing.T) {
	render(t, "settings=null", "rules=null", "podLabels=null", "podAnnotations=null", "extraEnv=null", "nodeSelector=null", "resources.limits=null")
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
	if strings.Contains(release(t, "everything").yaml, "h2c") {
		t.Error("a Service says that gRPC is not encrypted")
	}
}

// TestChartRestartsNothingForTheStore: where health follows the store, a store
// that is away would have the kubelet restart every pod.
func TestChartRestartsNothingForTheStore(t *testing.T) {
	c := render(t, "backend.type=redis", "settings.REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true").one(t, "Deployment").Spec.Template.Spec.ours(t)
	if c.LivenessProbe != (probe{}) || c.ReadinessProbe.GRPC == nil {
		t.Errorf("liveness %+v, readiness %+v", c.LivenessProbe, c.ReadinessProbe)
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
