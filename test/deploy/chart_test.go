package deploy_test

import (
	"fmt"
	"maps"
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

// TestChartRefusesWrongValues with a message that names the value.
func TestChartRefusesWrongValues(t *testing.T) {
	helm := tool(t, "helm")
	for _, c := range []struct{ set, says string }{
		{"backend.type=memory", "want replicas 1"},
		{"backend.type=memory,replicas=1,autoscaling.enabled=true", "each replica counts for itself"},
		{"autoscaling.enabled=true,autoscaling.minReplicas=11", "want at most autoscaling.maxReplicas"},
		{"backend.type=postgres", "backend/type"},
		{"backend.redis.url=", "backend/redis/url"},
		{"backend.redis.url=redis://:secret@redis:6379", "backend/redis/url"},
		{"backend.redis.type=RING", "backend/redis/type"},
		{"backend.redis.type=SENTINEL", "want the name of the master and the sentinels"},
		{"backend.redis.sentinelAuthSecret.name=redis", "there are no sentinels with backend.redis.type SINGLE"},
		{"backend.redis.ca.secret=redis-tls", "want backend.redis.tls true"},
		{"backend.redis.tls=true,backend.redis.ca.secret=a,backend.redis.ca.configMap=b", "want secret or configMap"},
		{"backend.redis.tls=true,backend.redis.ca.secret=a,settings.REDIS_TLS_CACERT=/ca.crt", "settings.REDIS_TLS_CACERT: backend.redis.ca is set"},
		{"backend.redis.authSecret.name=redis,settings.REDIS_AUTH_FILE=/auth", "settings.REDIS_AUTH_FILE: the chart mounts the Secret redis"},
		{"admin.tokenSecret.name=tokens,settings.ADMIN_TOKEN_FILE=/tokens", "settings.ADMIN_TOKEN_FILE: the chart mounts the Secret tokens"},
		{"backend.memcache.hosts=memcached", "backend/memcache/hosts"},
		{"backend.type=memcache,backend.memcache.hosts=", "want the servers here"},
		{"drainPeriodSeconds=3s", "drainPeriodSeconds"},
		{"image.digest=latest", "image/digest"},
		{"replica=3", "'replica'"},
		{"podDisruptionBudget.maxUnavailable=half", "podDisruptionBudget/maxUnavailable"},
		{"metrics.enabled=false,metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.enabled: want metrics.enabled"},
		{"metrics.enabled=false,metrics.prometheusRule.enabled=true", "metrics.prometheusRule.enabled: want metrics.enabled"}, // else RLSAbsent fires for ever
		{"existingRulesConfigMap=mine,rules.mine=domain: mine", "rules: existingRulesConfigMap is set"},
		{"settings.CONFIG_TYPE=grpc_xds_sotw,rules.mine=domain: mine", "a management server sends the rules"},
		{"podLabels.app\\.kubernetes\\.io/name=other", "podLabels.app.kubernetes.io/name: selectors find the pods by this label"},
		{"fullnameOverride=Limits", "fullnameOverride"},
		{"autoscaling=null", "missing property 'autoscaling'"},
		{"metrics.serviceMonitor=null", "missing property 'serviceMonitor'"},

		{"settings.log_level=info", "'log_level'"},
		{"settings.LOG_LEVL=info", "settings.LOG_LEVL: there is no such setting"},
		{"settings.EXTRA=x", "settings.EXTRA: there is no such setting"},
		{"settings.GRPC_PORT=9000", "settings.GRPC_PORT: the chart's Services, probes and policies"},
		{"settings.GRPC_HOST=127.0.0.1", "GRPC_HOST=127.0.0.1: Envoy and the probes"},
		{"settings.HOST=localhost", "HOST=localhost: Envoy and the probes"},
		{"settings.GRPC_UDS=/run/rls.sock", "settings.GRPC_UDS: the chart's Services and probes need the listener"},
		{"settings.USE_HTTP=false", "settings.USE_HTTP: the chart's Services and probes need the listener"},
		{"settings.RUNTIME_ROOT=/srv", "settings.RUNTIME_ROOT: the chart mounts the rules"},
		{"settings.RUNTIME_SUBDIRECTORY=x", "settings.RUNTIME_SUBDIRECTORY: the chart mounts the rules"},
		{"settings.RUNTIME_APPDIRECTORY=x", "settings.RUNTIME_APPDIRECTORY: the chart mounts the rules"},
		{"settings.RUNTIME_WATCH_ROOT=true", "settings.RUNTIME_WATCH_ROOT: the chart mounts the rules"},
		{"settings.REDIS_URL=redis:6380", "settings.REDIS_URL: want backend.redis.url"}, // the NetworkPolicy opens the port of backend.redis.url
		{"settings.REDIS_AUTH=secret", "settings.REDIS_AUTH: want backend.redis.authSecret"},
		{"settings.REDIS_SENTINEL_AUTH=secret", "settings.REDIS_SENTINEL_AUTH: want backend.redis.sentinelAuthSecret"},
		{"settings.CACHE_KEY_HASH_SECRET=0123456789abcdef", "want extraEnv, from a Secret"},
		{"settings.CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:secret", "want extraEnv, from a Secret"},
		{"settings.REDIS_PERSECOND_URL=redis://:secret@redis:6379", "REDIS_PERSECOND_AUTH, from a Secret"},
		{"extraEnv[0].name=RUNTIME_ROOT", "extraEnv: RUNTIME_ROOT: the chart mounts the rules"},
		{"extraEnv[0].name=GRPC_HOST,extraEnv[0].value=127.0.0.1", "GRPC_HOST=127.0.0.1: Envoy and the probes"},
		{"extraEnv[0].value=x", "extraEnv/0"},
	} {
		out, err := run(root, helm, "template", "test", chart, "--kube-version", kubernetes+".0", "--set", c.set)
		if err == nil {
			t.Errorf("%s is accepted:\n%s", c.set, out)
		} else if _, message, _ := strings.Cut(err.Error(), "\n"); !strings.Contains(message, c.says) {
			t.Errorf("%s: %v", c.set, err)
		}
	}
}

// TestChartReachesTheStore: the NetworkPolicy lets pods connect to the ports of
// the store, besides DNS, and to no others.
func TestChartReachesTheStore(t *testing.T) {
	for _, c := range []struct {
		from  rendering
		ports []string
	}{
		{release(t, "defaults"), []string{"6379"}},
		{release(t, "memory"), nil},
		{release(t, "redis"), []string{"6380"}},
		{release(t, "redis-cluster"), []string{"6379"}},
		{release(t, "redis-sentinel"), []string{"6379", "26379"}},
		{release(t, "memcached"), []string{"11211"}},
		{render(t, "backend.redis.url=redis.databases"), []string{"6379"}},
		{render(t, "backend.redis.url=rediss://redis.databases:6380/3"), []string{"6380"}},
		{render(t, "backend.redis.url=/run/redis.sock", "settings.REDIS_SOCKET_TYPE=unix"), nil},
		{render(t, "settings.REDIS_PERSECOND=true", "settings.REDIS_PERSECOND_URL=seconds:6390"), []string{"6379", "6390"}},
		{render(t, "settings.REDIS_PERSECOND=true", `settings.REDIS_PERSECOND_URL=seconds-0:6390\,seconds-1:6391`), []string{"6379", "6390", "6391"}},
		{render(t, "backend.redis.url=redis:6380", "settings.REDIS_PERSECOND=true", `settings.REDIS_PERSECOND_URL=primary\,sentinel:26379`), []string{"6380", "6379", "26379"}},
		{render(t, "settings.REDIS_PERSECOND=true"), []string{"6379"}}, // its default is a socket
		{render(t, "settings.REDIS_PERSECOND=false", "settings.REDIS_PERSECOND_URL=seconds:6390"), []string{"6379"}},
		{render(t, "backend.type=memcache", "backend.memcache.hosts=", "settings.MEMCACHE_SRV=_memcached._tcp.memcached"), []string{"11211"}},
	} {
		_, egress, _ := strings.Cut(c.from.yaml, "egress:")
		egress, _, _ = strings.Cut(egress, "---")
		var ports []string
		for _, m := range regexp.MustCompile(`\{port: (\d+)\}`).FindAllStringSubmatch(egress, -1) {
			ports = append(ports, m[1])
		}
		if !slices.Equal(ports, c.ports) {
			t.Errorf("%s: may connect to %v, want %v", c.from.name, ports, c.ports)
		}
	}
}

// TestChartSettings: settings reach the pods as they were written. A setting of
// the chart that would be empty is left out.
func TestChartSettings(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	write(t, values, `settings: {TRACING_SAMPLING_RATE: 0.25, REQUEST_MAX_BYTES: 104857600, SHADOW_MODE: true, CACHE_KEY_PREFIX: "007", NEAR_LIMIT_RATIO: 1e-3}`)
	r := template(t, "settings", "--values", values)
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

// TestChartAcceptsNull for lists and maps that may be empty.
func TestChartAcceptsNull(t *testing.T) {
	render(t, "settings=null", "rules=null", "podLabels=null", "podAnnotations=null", "extraEnv=null", "nodeSelector=null", "resources.limits=null")
}

// TestChartRollsPodsForSettingsOnly: changed settings make new pods. Changed rules
// do not, since they reach the running ones.
func TestChartRollsPodsForSettingsOnly(t *testing.T) {
	deployment := func(set string) string {
		return template(t, set, "--show-only", "templates/deployment.yaml", "--set", set).yaml
	}
	before := deployment("fullnameOverride=test-rls")
	if deployment("rules.other=domain: other") != before {
		t.Error("other rules make another Deployment")
	}
	if deployment("settings.LOG_LEVEL=debug") == before {
		t.Error("other settings make no other Deployment")
	}
}

// TestChartProbesWithoutTLS: probes are HTTP when gRPC is served over TLS, which
// the kubelet's gRPC probes do not speak.
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

// TestChartRestartsNothingForTheStore: when health follows the store there is no
// liveness probe, or the kubelet would restart every pod while the store is away.
func TestChartRestartsNothingForTheStore(t *testing.T) {
	c := render(t, "settings.REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true").one(t, "Deployment").Spec.Template.Spec.ours(t)
	if c.LivenessProbe != (probe{}) || c.ReadinessProbe.GRPC == nil {
		t.Errorf("liveness %+v, readiness %+v", c.LivenessProbe, c.ReadinessProbe)
	}
}

// TestChartSettingsExist: the chart accepts every setting of docs/settings.md that
// its templates do not decide, and the variables of OpenTelemetry, DogStatsD and
// Go that docs/ name.
func TestChartSettingsExist(t *testing.T) {
	render(t, "settings.SHADOW_MODE=true", "settings.DEBUG_PORT=6071", "settings.OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317",
		"settings.DOG_STATSD_MOGRIFIER_A_PATTERN=x", "settings.GOGC=200", "settings.HOST=::", "settings.GRPC_HOST=::")
	var documented []string
	for _, m := range settingRow.FindAllStringSubmatch(read(t, "docs/settings.md"), -1) {
		documented = append(documented, m[1])
	}
	if names := strings.Fields(read(t, chart+"/files/settings.txt")); len(names) < 100 || !slices.Equal(names, documented) {
		t.Errorf("the chart knows %d settings, docs/settings.md has %d; run go test ./pkg/settings -update", len(names), len(documented))
	}
}

// TestPasswordsAreMounted: a Secret that a value or an overlay names is mounted as the
// file that the setting names, so that a changed one counts without a restart, and a
// pod does not start without it.
func TestPasswordsAreMounted(t *testing.T) {
	for _, c := range []struct {
		from rendering
		want map[string]string
	}{
		{release(t, "defaults"), map[string]string{}},
		{release(t, "redis"), map[string]string{"REDIS_AUTH_FILE": "redis-password/password"}},
		{release(t, "redis-sentinel"), map[string]string{"REDIS_AUTH_FILE": "redis-password/password", "REDIS_SENTINEL_AUTH_FILE": "redis-password/sentinel"}},
		{ownOverlay(t, 0), map[string]string{"REDIS_AUTH_FILE": "rls-redis/auth"}},
		{release(t, "admin"), map[string]string{"ADMIN_TOKEN_FILE": "operators/tokens"}},
	} {
		got := map[string]string{}
		p := c.from.one(t, "Deployment").Spec.Template.Spec
		for name, file := range c.from.environment(t, p.ours(t)) {
			if !strings.HasSuffix(name, "AUTH_FILE") && name != "ADMIN_TOKEN_FILE" {
				continue
			}
			for _, m := range p.ours(t).VolumeMounts {
				for _, v := range p.Volumes {
					if s := v.Secret; v.Name == m.Name && len(s.Items) == 1 && m.MountPath+"/"+s.Items[0].Path == file && m.SubPath == "" {
						got[name] = s.SecretName + "/" + s.Items[0].Key
						if s.Optional {
							t.Errorf("%s: %s starts without the Secret %s", c.from.name, name, s.SecretName)
						}
					}
				}
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: from Secrets %v, want %v", c.from.name, got, c.want)
		}
	}
}

// TestChartMountsTheCA: the CA of a Redis is mounted at the path in REDIS_TLS_CACERT.
func TestChartMountsTheCA(t *testing.T) {
	for name, file := range map[string]string{"redis": "/etc/rls/redis-ca/ca.crt", "redis-cluster": "/etc/rls/redis-ca/ca.pem"} {
		r := release(t, name)
		p := r.one(t, "Deployment").Spec.Template.Spec
		if got := r.environment(t, p.ours(t))["REDIS_TLS_CACERT"]; got != file {
			t.Errorf("%s: REDIS_TLS_CACERT=%s, want %s", name, got, file)
		}
		mounted := ""
		for _, m := range p.ours(t).VolumeMounts {
			for _, v := range p.Volumes {
				if m.Name == v.Name && m.MountPath == filepath.Dir(file) {
					mounted = v.ConfigMap.Name + v.Secret.SecretName
				}
			}
		}
		if want := map[string]string{"redis": "redis-ca", "redis-cluster": "redis-tls"}[name]; mounted != want {
			t.Errorf("%s: %q is mounted at %s, want %s", name, mounted, filepath.Dir(file), want)
		}
	}
}

// TestChartLetsIn the peers of networkPolicy.from, and nobody else.
func TestChartLetsIn(t *testing.T) {
	for name, want := range map[string]string{
		"defaults":   "[map[namespaceSelector:map[]]]",
		"everything": "[map[namespaceSelector:map[matchLabels:map[team:edge]]] map[ipBlock:map[cidr:192.0.2.0/24]]]",
	} {
		in := release(t, name).one(t, "NetworkPolicy").Spec.Ingress
		if len(in) != 1 || fmt.Sprint(in[0].From) != want {
			t.Errorf("%s: %v, want %s", name, in, want)
		}
	}
}

// TestChartWithoutFilesOfRules: with rules from a management server there is no
// ConfigMap, and with rules whose errors are skipped no check that stops the pod.
func TestChartWithoutFilesOfRules(t *testing.T) {
	for _, c := range []struct {
		from          rendering
		mounts, check int
	}{
		{release(t, "xds"), 0, 0},
		{render(t, "settings.CONFIG_ON_ERROR=skip"), 1, 0},
		{release(t, "defaults"), 1, 1},
	} {
		p := c.from.one(t, "Deployment").Spec.Template.Spec
		if len(p.Volumes) != c.mounts || len(p.ours(t).VolumeMounts) != c.mounts || len(p.InitContainers) != c.check {
			t.Errorf("%s: volumes %v, init containers %d", c.from.name, p.Volumes, len(p.InitContainers))
		}
		if rules := strings.Contains(c.from.yaml, "name: test-rls-rules\n"); rules != (c.mounts > 0) {
			t.Errorf("%s: a ConfigMap of rules: %v", c.from.name, rules)
		}
	}
}

// TestChartReadme: README.md explains every value.
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
