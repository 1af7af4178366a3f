package deploy_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
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

// TestChartRendersWithoutMore: the helm that make builds renders and lints the chart as its users'
// helm does, for a Kubernetes that it knows by itself.
func TestChartRendersWithoutMore(t *testing.T) {
	helm := tool(t, "helm")
	for _, command := range [][]string{{"template", "test", chart}, {"lint", "--strict", chart}} {
		if _, err := run(root, helm, command...); err != nil {
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
		{"admin.tls.secret=tls", "admin.tls.secret: without tokens there is no admin API: want admin.tokenSecret.name, too"},
		{"admin.tls.certManager.enabled=true", "admin.tls.certManager: without tokens there is no admin API"},
		{"admin.tokenSecret.name=tokens,admin.tls.certManager.enabled=true", "admin.tls.certManager.issuerRef.name: want the Issuer or ClusterIssuer that signs the certificate"},
		{"admin.tokenSecret.name=tokens,admin.tls.certManager.enabled=true,admin.tls.certManager.issuerRef.name=ca,admin.tls.secret=tls", "admin.tls.secret: admin.tls.certManager.enabled is true: want one of the two"},
		{"grpc.tls.secret=tls,settings.GRPC_SERVER_USE_TLS=true", "settings.GRPC_SERVER_USE_TLS: the chart mounts the Secret tls for it"},
		{"grpc.tls.secret=tls,extraVolumes[0].name=grpc-tls", "extraVolumes: grpc-tls is a volume of the chart: want another name"},
		{"admin.fleet.enabled=true,admin.tls.secret=tls", "want admin.tokenSecret.name, too"},
		{"admin.fleet.enabled=true,admin.fleet.insecure=true", "admin.fleet.enabled: pods ask each other with the token of who asks them: want admin.tokenSecret.name"},
		{"admin.fleet.enabled=true,admin.tokenSecret.name=tokens", "admin.fleet.enabled: tokens cross the network: want admin.tls.secret or admin.tls.certManager, or admin.fleet.insecure true"},
		{"admin.fleet.enabled=yes", "admin/fleet/enabled"},
		{"admin.tls.key=tls.key", "'key'"},
		{"admin.tokenSecret.name=tokens,admin.tls.secret=tls,settings.ADMIN_USE_TLS=false", "settings.ADMIN_USE_TLS: the chart mounts the Secret tls for it"},
		{"admin.tokenSecret.name=tokens,admin.tls.secret=tls,extraEnv[0].name=ADMIN_TLS_CERT", "extraEnv: ADMIN_TLS_CERT: the chart mounts the Secret tls for it"},
		{"admin.tokenSecret.name=tokens,admin.tls.secret=tls,admin.fleet.enabled=true,settings.ADMIN_HOST=127.0.0.1", "ADMIN_HOST=127.0.0.1: Envoy, the probes and other pods come to the pod's own address"},
		{"admin.tokenSecret.name=tokens,admin.tls.secret=tls,admin.fleet.enabled=true,settings.ADMIN_PORT=7000", "settings.ADMIN_PORT: the chart's Services"},
		{"admin.tokenSecret.name=tokens,admin.tls.secret=tls,admin.fleet.enabled=true,settings.ADMIN_FLEET=rls:6071", "settings.ADMIN_FLEET: it is the headless Service with admin.fleet.enabled"},
		{"backend.memcache.hosts=memcached", "backend/memcache/hosts"},
		{"backend.type=memcache,backend.memcache.hosts=", "want the servers here"},
		{"drainPeriodSeconds=3s", "drainPeriodSeconds"},
		{"image.digest=latest", "image/digest"},
		{"replica=3", "'replica'"},
		{"podDisruptionBudget.maxUnavailable=half", "podDisruptionBudget/maxUnavailable"},
		{"metrics.enabled=false,metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.enabled: want metrics.enabled"},
		{"metrics.enabled=false,metrics.prometheusRule.enabled=true", "metrics.prometheusRule.enabled: want metrics.enabled"}, // else RLSAbsent fires for ever
		{"existingRulesConfigMap=mine,rules.mine=domain: mine", "rules: existingRulesConfigMap is set"},
		{"existingRulesConfigMap=mine,existingRulesConfigMaps={theirs}", "existingRulesConfigMaps: existingRulesConfigMap is set: want one of them"},
		{"existingRulesConfigMaps={mine,mine}", "existingRulesConfigMaps"},
		{"rulesVolume.emptyDir.medium=Memory,rules.mine=domain: mine", "rules: rulesVolume is set: want one of them"},
		{"rulesVolume.name=rules", "rulesVolume.name: the chart names the volume"},
		{"extraVolumes[0].name=rules", "extraVolumes: rules is a volume of the chart: want another name"},
		{"admin.tokenSecret.name=tokens,extraVolumes[0].name=admin-tokens", "extraVolumes: admin-tokens is a volume of the chart"},
		{"extraContainers[0].image=proxy", "extraContainers/0"},
		{"extraContainers[0].name=rls", "extraContainers: rls is a container of the chart: want another name"},
		{"extraInitContainers[0].name=check-rules", "extraInitContainers: check-rules is a container of the chart"},
		{"autoscaling.enabled=true,autoscaling.targetCPUUtilizationPercentage=null", "autoscaling.metrics: want at least one metric"},
		{"autoscaling.metrics[0].type=Requests", "autoscaling/metrics/0/type"},
		{"autoscaling.behavior.scaleUpwards.policies={}", "'scaleUpwards'"},
		{"service.trafficDistribution=Near", "service/trafficDistribution"},
		{"dnsPolicy=None", "dnsConfig.nameservers: with dnsPolicy None want at least one"},
		{"dnsPolicy=Cluster", "dnsPolicy"},
		{"probes.readiness.periodSeconds=2s", "probes/readiness/periodSeconds"},
		{"probes.liveness.successThreshold=2", "probes/liveness/successThreshold"},
		{"probes.startup.period=1", "'period'"},
		{"metrics.prometheusRule.alerts.RLSSlowly.threshold=1", "metrics.prometheusRule.alerts.RLSSlowly: there is no such alert: want one of RLSAbsent, RLSControlPlaneLost"},
		{"metrics.prometheusRule.alerts.RLSStoreDown.threshold=1", "metrics.prometheusRule.alerts.RLSStoreDown.threshold: this alert has none"},
		{"metrics.prometheusRule.alerts.RLSSlow.threshold=10ms", "metrics/prometheusRule/alerts/RLSSlow/threshold"},
		{"metrics.prometheusRule.alerts.RLSSlow.severity=page", "metrics/prometheusRule/alerts/RLSSlow/severity"},
		{"settings.CONFIG_TYPE=grpc_xds_sotw,rules.mine=domain: mine", "rules: with settings.CONFIG_TYPE grpc_xds_sotw a management server sends the rules"},
		{"podLabels.app\\.kubernetes\\.io/name=other", "podLabels.app.kubernetes.io/name: selectors find the pods and Services by this label"},
		{"commonLabels.app\\.kubernetes\\.io/instance=other", "commonLabels.app.kubernetes.io/instance: selectors find the pods and Services by this label"},
		{"service.labels.app\\.kubernetes\\.io/name=other", "service.labels.app.kubernetes.io/name: selectors find the pods and Services by this label"},
		{"podAnnotations.checksum/settings=x", "podAnnotations.checksum/settings: by it changed settings replace the pods"},
		{"fullnameOverride=Limits", "fullnameOverride"},
		{"autoscaling=null", "missing property 'autoscaling'"},
		{"metrics.serviceMonitor=null", "missing property 'serviceMonitor'"},

		{"settings.log_level=info", "'log_level'"},
		{"settings.LOG_LEVL=info", "settings.LOG_LEVL: there is no such setting"},
		{"settings.EXTRA=x", "settings.EXTRA: there is no such setting"},
		{"settings.GRPC_PORT=9000", "settings.GRPC_PORT: the chart's Services, probes and policies"},
		{"settings.GRPC_HOST=127.0.0.1", "GRPC_HOST=127.0.0.1: Envoy, the probes"},
		{"settings.HOST=localhost", "HOST=localhost: Envoy, the probes"},
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
		{"extraEnv[0].name=GRPC_HOST,extraEnv[0].value=127.0.0.1", "GRPC_HOST=127.0.0.1: Envoy, the probes"},
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
	render(t, "settings=null", "rules=null", "podLabels=null", "podAnnotations=null", "extraEnv=null", "nodeSelector=null", "resources.limits=null",
		"commonLabels=null", "commonAnnotations=null", "deployment.labels=null", "service.labels=null", "service.headless.labels=null", "serviceAccount.labels=null",
		"existingRulesConfigMaps=null", "rulesVolume=null", "extraContainers=null", "extraInitContainers=null", "dnsPolicy=null", "dnsConfig=null",
		"autoscaling.enabled=true", "autoscaling.metrics=null", "autoscaling.behavior=null", "metrics.prometheusRule.enabled=true", "metrics.prometheusRule.alerts=null",
		"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.relabelings=null", "admin.fleet.from=null", "tests.tls=null")
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

// TestPasswordsAreMounted: a Secret that a value names is mounted as the
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
		{release(t, "admin"), map[string]string{"ADMIN_TOKEN_FILE": "operators/tokens"}},
		{release(t, "fleet"), map[string]string{"ADMIN_TOKEN_FILE": "operators/tokens"}},
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

// TestChartLetsIn the peers that networkPolicy names for a port, and nobody else, and lets pods
// connect to the store only where that is.
func TestChartLetsIn(t *testing.T) {
	for name, want := range map[string]string{
		"defaults": "[map[namespaceSelector:map[]]] grpc, [map[namespaceSelector:map[]]] http, [map[namespaceSelector:map[]]] metrics",
		"everything": "[map[namespaceSelector:map[matchLabels:map[team:edge]]] map[ipBlock:map[cidr:192.0.2.0/24]]] grpc, " +
			"[map[podSelector:map[matchLabels:map[team:probes]]]] http, [map[namespaceSelector:map[matchLabels:map[team:monitoring]]]] metrics",
	} {
		policy := release(t, name).one(t, "NetworkPolicy").Spec
		var in []string
		for _, rule := range policy.Ingress {
			for _, port := range rule.Ports {
				in = append(in, fmt.Sprint(rule.From, " ", port.Port))
			}
		}
		if got := strings.Join(in, ", "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		store := policy.Egress[1]
		if to := map[string]string{"defaults": "[]", "everything": "[map[podSelector:map[matchLabels:map[app:redis]]]]"}[name]; fmt.Sprint(store.To) != to || fmt.Sprint(store.Ports) != "[{6379}]" {
			t.Errorf("%s: to the store: %v on %v, want %s", name, store.To, store.Ports, to)
		}
	}
}

// TestSecretsAreForTheProcessOnly: files of Secrets can be read by the group of the process, and by
// nobody else.
func TestSecretsAreForTheProcessOnly(t *testing.T) {
	for _, name := range []string{"redis", "redis-cluster", "redis-sentinel", "fleet", "certificates"} {
		r := release(t, name)
		p, secrets := r.one(t, "Deployment").Spec.Template.Spec, 0
		for _, v := range p.Volumes {
			if v.Secret.SecretName == "" {
				continue
			}
			if secrets++; v.Secret.DefaultMode != 0o440 || p.SecurityContext.FSGroup != p.SecurityContext.RunAsGroup {
				t.Errorf("%s: %s has the mode %o, and the group %d", name, v.Name, v.Secret.DefaultMode, p.SecurityContext.FSGroup)
			}
		}
		if secrets == 0 {
			t.Errorf("%s mounts none", name)
		}
	}
}

// TestCertificates: cert-manager's Certificate makes the Secret that the pods mount, for a name of the
// Service by which they reach each other; the gRPC port has a certificate of its own.
func TestCertificates(t *testing.T) {
	r := release(t, "certificates")
	p := r.one(t, "Deployment").Spec.Template.Spec
	env := r.environment(t, p.ours(t))
	made := r.one(t, "Certificate").Spec
	mounted := map[string]string{}
	for _, v := range p.Volumes {
		for _, m := range p.ours(t).VolumeMounts {
			if m.Name == v.Name && v.Secret.SecretName != "" {
				mounted[m.MountPath] = v.Secret.SecretName
			}
		}
	}
	for setting, secret := range map[string]string{
		"ADMIN_TLS_CERT": made.SecretName, "ADMIN_TLS_KEY": made.SecretName, "ADMIN_FLEET_TLS_CACERT": made.SecretName,
		"GRPC_SERVER_TLS_CERT": "grpc", "GRPC_SERVER_TLS_KEY": "grpc",
	} {
		if mounted[filepath.Dir(env[setting])] != secret || secret == "" {
			t.Errorf("%s=%s is of %q, want %q", setting, env[setting], mounted[filepath.Dir(env[setting])], secret)
		}
	}
	name, _, _ := strings.Cut(env["ADMIN_FLEET"], ":")
	if !slices.ContainsFunc(made.DNSNames, func(n string) bool { return strings.HasPrefix(n, name+".") }) || made.IssuerRef["name"] != "internal" {
		t.Errorf("%+v, and the pods ask %s", made, name)
	}
	if strings.Contains(r.yaml, "h2c") || p.ours(t).ReadinessProbe.HTTPGet == nil {
		t.Error("gRPC has TLS, and something takes it for clear text")
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

// TestChartLabels: common labels and annotations are on every object and on the pods,
// those of one object win over them, and no selector has one.
func TestChartLabels(t *testing.T) {
	r := release(t, "extras")
	own := map[string]string{
		"Deployment/test-rls": "deployment", "Pod/": "pod", "Pod/test-rls-test": "all", "Service/test-rls": "service", "Service/test-rls-headless": "headless",
		"ServiceAccount/test-rls": "account", "ServiceMonitor/test-rls": "monitor", "PrometheusRule/test-rls": "alerts", "ConfigMap/test-rls-dashboard": "dashboard",
	}
	objects := slices.Concat(r.objects, r.tests)
	var pods object
	pods.Kind, pods.Metadata.Labels = "Pod", r.one(t, "Deployment").Spec.Template.Metadata.Labels
	pods.Metadata.Annotations = r.one(t, "Deployment").Spec.Template.Metadata.Annotations
	for _, o := range append(objects, pods) {
		id := o.Kind + "/" + o.Metadata.Name
		want := cmp.Or(own[id], "all")
		delete(own, id)
		for what, set := range map[string]map[string]string{"label": o.Metadata.Labels, "annotation": o.Metadata.Annotations} {
			if set["example.org/of"] != want || set["team"] != "edge" {
				t.Errorf("%s has the %ss %v, want example.org/of: %s, team: edge", id, what, set, want)
			}
		}
		if selector := fmt.Sprint(o.Spec.Selector, o.Spec.PodSelector); strings.Contains(selector, "edge") {
			t.Errorf("%s selects %s, which cannot change later", id, selector)
		}
	}
	if len(own) > 0 || len(objects) < 14 {
		t.Errorf("%d objects, and without %v", len(objects), own)
	}
}

// TestChartPods: what values say of a pod stands in it.
func TestChartPods(t *testing.T) {
	p := release(t, "extras").one(t, "Deployment").Spec.Template.Spec
	var names []string
	for _, c := range slices.Concat(p.InitContainers, p.Containers) {
		names = append(names, c.Name)
	}
	if want := []string{"before", "check-rules", "rls", "beside"}; !slices.Equal(names, want) {
		t.Errorf("containers %v, want %v", names, want)
	}
	c := p.ours(t)
	for _, got := range []struct{ probe, want numbers }{
		{c.StartupProbe.numbers, numbers{PeriodSeconds: 1, FailureThreshold: 300}},
		{c.ReadinessProbe.numbers, numbers{PeriodSeconds: 5, FailureThreshold: 2}},
		{c.LivenessProbe.numbers, numbers{PeriodSeconds: 20, TimeoutSeconds: 5, FailureThreshold: 6}},
	} {
		if got.probe != got.want {
			t.Errorf("probe %+v, want %+v", got.probe, got.want)
		}
	}
	if p.DNSPolicy != "None" || fmt.Sprint(p.DNSConfig) != "map[nameservers:[192.0.2.53] options:[map[name:ndots value:1]]]" {
		t.Errorf("DNS %s %v", p.DNSPolicy, p.DNSConfig)
	}
}

// TestChartAutoscaling: metrics of one's own stand beside the CPU, or alone.
func TestChartAutoscaling(t *testing.T) {
	for _, c := range []struct {
		from rendering
		want []string
	}{
		{render(t, "autoscaling.enabled=true"), []string{"Resource"}},
		{render(t, "autoscaling.enabled=true", "autoscaling.metrics[0].type=External"), []string{"Resource", "External"}},
		{release(t, "extras"), []string{"Pods"}},
	} {
		var got []string
		for _, m := range c.from.one(t, "HorizontalPodAutoscaler").Spec.Metrics {
			got = append(got, m.Type)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: metrics %v, want %v", c.from.name, got, c.want)
		}
	}
	if !strings.Contains(release(t, "extras").yaml, "stabilizationWindowSeconds: 600") {
		t.Error("the behaviour is missing")
	}
}

// TestChartRulesFrom: where rules come from, and where they are mounted. The chart makes
// its own ConfigMap unless somebody else brings the rules.
func TestChartRulesFrom(t *testing.T) {
	for _, c := range []struct {
		from rendering
		want string
		own  bool
	}{
		{release(t, "defaults"), "test-rls-rules at /etc/rls/rules", true},
		{render(t, "existingRulesConfigMap=mine"), "mine at /etc/rls/rules", false},
		{render(t, "existingRulesConfigMaps={search,checkout}"), "search at /etc/rls/rules/search, checkout at /etc/rls/rules/checkout", false},
		{release(t, "teams"), "test-rls-rules at /etc/rls/rules/test-rls-rules, rules-search at /etc/rls/rules/rules-search", true},
		{release(t, "volume"), "claim rules at /etc/rls/rules", false},
		{release(t, "xds"), "", false},
	} {
		p := c.from.one(t, "Deployment").Spec.Template.Spec
		for _, container := range append(slices.Clone(p.InitContainers), p.ours(t)) {
			var mounts []string
			for _, m := range container.VolumeMounts {
				for _, v := range p.Volumes {
					from := v.ConfigMap.Name
					if claim := v.PersistentVolumeClaim.ClaimName; claim != "" {
						from = "claim " + claim
					}
					if v.Name == m.Name && m.ReadOnly {
						mounts = append(mounts, from+" at "+m.MountPath)
					}
				}
			}
			if got := strings.Join(mounts, ", "); got != c.want {
				t.Errorf("%s: %s reads %s, want %s", c.from.name, container.Name, got, c.want)
			}
		}
		if own := strings.Contains(c.from.yaml, "name: test-rls-rules\n  labels:"); own != c.own {
			t.Errorf("%s: a ConfigMap of the chart: %v", c.from.name, own)
		}
	}
}

// TestChartAlerts: values change the thresholds, times and severities of alerts and leave
// alerts out.
func TestChartAlerts(t *testing.T) {
	of := func(r rendering) map[string]string {
		alerts := map[string]string{}
		for _, a := range alertsOf(t, r) {
			alerts[a.Alert] = fmt.Sprintf("%s for %s: %s", strings.TrimSpace(a.Expr), a.For, a.Labels["severity"])
		}
		return alerts
	}
	before, want := of(release(t, "monitoring")), map[string]string{}
	if len(before) < 10 {
		t.Errorf("the chart has %v", before)
	}
	changes := map[string]*strings.Replacer{
		"RLSSlow":        strings.NewReplacer("> 0.01 for 10m: warning", "> 0.025 for 30m: info"),
		"RLSFailing":     strings.NewReplacer("> 0.01 ", "> 0 "),
		"RLSDenialSurge": strings.NewReplacer("> 0.1\n", "> 0.5\n"),
		"RLSPanics":      strings.NewReplacer("> 0 ", "> 5 "),
	}
	for alert, text := range before {
		if changed := changes[alert]; changed != nil {
			want[alert] = changed.Replace(text)
			if want[alert] == text {
				t.Errorf("nothing changes %s", text)
			}
		} else if alert != "RLSRulesGone" {
			want[alert] = text
		}
	}
	if got := of(release(t, "extras")); !maps.Equal(got, want) {
		t.Errorf("alerts %v, want %v", got, want)
	}
}

// TestChartTest: the pod of helm test is let in, is no endpoint of the Services, and its
// commands succeed while the service runs and fail without it.
func TestChartTest(t *testing.T) {
	r := release(t, "extras")
	i := slices.IndexFunc(r.tests, func(o object) bool { return o.Kind == "Pod" })
	j := slices.IndexFunc(r.tests, func(o object) bool { return o.Kind == "NetworkPolicy" })
	if len(r.tests) != 2 || i < 0 || j < 0 {
		t.Fatalf("helm test makes %+v", r.tests)
	}
	tester, policy := r.tests[i], r.tests[j]
	selected := true
	for label, value := range asStrings(r.one(t, "Deployment").Spec.Selector["matchLabels"]) {
		selected = selected && tester.Metadata.Labels[label] == value
	}
	if selected {
		t.Errorf("Services and policies select the pod of helm test: %v", tester.Metadata.Labels)
	}
	for label, value := range asStrings(policy.Spec.Ingress[0].From[0]["podSelector"].(map[string]any)["matchLabels"]) {
		if tester.Metadata.Labels[label] != value {
			t.Errorf("the policy lets in %s=%s, the pod has %v", label, value, tester.Metadata.Labels)
		}
	}
	if slices.ContainsFunc(render(t, "networkPolicy.enabled=false").tests, func(o object) bool { return o.Kind == "NetworkPolicy" }) {
		t.Error("without the chart's NetworkPolicy there is one for the test")
	}

	rules := t.TempDir()
	write(t, filepath.Join(rules, "rules", "rules.yaml"), read(t, "config/quickstart.yaml"))
	p := start(t, []string{"rls", "serve"}, map[string]string{"BACKEND_TYPE": "memory", "RUNTIME_ROOT": rules, "RUNTIME_APPDIRECTORY": "rules", "RUNTIME_WATCH_ROOT": "false"})
	var commands []string
	for _, c := range release(t, "defaults").tests[i].Spec.Containers {
		commands = append(commands, strings.Join(c.Command[:2], " "))
		for at, ok := range map[string]bool{p.grpc: true, fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)): false} {
			command := strings.ReplaceAll(strings.Join(c.Command[1:], " "), "test-rls:8081", at)
			command = strings.ReplaceAll(command, "30s", map[bool]string{true: "30s", false: "1s"}[ok])
			if out, err := run("", filepath.Join(binaryDir, "rls"), strings.Fields(command)...); (err == nil) != ok {
				t.Errorf("rls %s: %s %v", command, out, err)
			}
		}
	}
	slices.Sort(commands)
	if want := []string{"/bin/rls client", "/bin/rls healthcheck"}; !slices.Equal(commands, want) {
		t.Errorf("helm test runs %v, want %v", commands, want)
	}

	// Without a CA no certificate can be checked: only the health is asked for, as within the pods.
	if c := render(t, "settings.GRPC_SERVER_USE_TLS=true").tests[i].Spec.Containers; len(c) != 1 || c[0].Command[1] != "healthcheck" || strings.Contains(strings.Join(c[0].Command, " "), "--addr") || len(c[0].Env) != 2 {
		t.Errorf("with TLS: %+v", c)
	}
}

// TestChartNotes: after an installation Helm says what runs, how to try it, and what is
// missing. Helm alone renders notes for a cluster only, so an object has them here.
func TestChartNotes(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, chart))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "templates", "notes.yaml"), "kind: ConfigMap\nmetadata: {name: notes}\ndata: {notes: {{ include (print $.Template.BasePath \"/NOTES.txt\") . | toJson }}}\n")
	notes := func(values string) string {
		out, err := run(root, tool(t, "helm"), "template", "test", dir, "--namespace", "limits", "--kube-version", kubernetes+".0", "--values", filepath.Join(valueSets, values+".yaml"), "--show-only", "templates/notes.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, out)[0].Data["notes"]
	}
	for values, says := range map[string][]string{
		"defaults": {
			"counts in Redis at redis:6379, with 2 replicas of registry.example.org/rls:0.1.0", "test-rls.limits.svc:8081",
			"image.repository: the image in your registry", "helm -n limits test test", "rls client --domain quickstart",
			"(rules, existingRulesConfigMaps, rulesVolume)", "(admin.tokenSecret)", "(networkPolicy.from)", "(metrics.prometheusRule.enabled)",
		},
		"redis":          {"with 3 to 30 replicas", "Secret redis-password with the key password (REDIS_AUTH_FILE)", "ConfigMap redis-ca with the key ca.crt (REDIS_TLS_CACERT)"},
		"redis-cluster":  {"Redis Cluster at redis-0.redis:6379", "Secret redis-tls with the key ca.pem"},
		"redis-sentinel": {"Secret redis-password with the key sentinel"},
		"memcached":      {"counts in memcached at memcached-0.memcached:11211"},
		"admin":          {"memory of one pod, with one replica", "Secret operators with the key tokens", "port-forward deployment/test-rls 6071", "(backend.type)"},
		"fleet":          {"port-forward deployment/test-rls 6071   # the page of all replicas: https://localhost:6071", "Secret rls-admin-tls with the keys tls.crt, tls.key (ADMIN_TLS_CERT, ADMIN_TLS_KEY)"},
		"bare":           {"ConfigMap my-rules with rules", "(networkPolicy.enabled)"},
		"teams":          {"ConfigMap rules-search with rules"},
	} {
		text := notes(values)
		for _, part := range says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q is missing in\n%s", values, part, text)
			}
		}
		if regexp.MustCompile(`<nil>|<no value>|%!|(?m)[ \t]$`).MatchString(text) {
			t.Errorf("%s:\n%s", values, text)
		}
	}
	for values, not := range map[string]string{"fleet": "fleet", "everything": "rls client --domain quickstart", "monitoring": "metrics.", "xds": "rulesVolume", "volume": "NEEDS, or no pod starts\n  ConfigMap"} {
		if text := notes(values); strings.Contains(text, not) {
			t.Errorf("%s: %q in\n%s", values, not, text)
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
