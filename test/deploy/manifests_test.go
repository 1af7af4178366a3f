package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// crds returns the folder with the definitions of prometheus-operator's objects,
// in the module that tools/deploy.mod pins.
func crds(t *testing.T) string {
	t.Helper()
	out, err := run(root, "go", "mod", "download", "-modfile=tools/deploy.mod", "-json", "github.com/prometheus-operator/prometheus-operator")
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "example", "prometheus-operator-crd")
}

// validate runs kubectl-validate on the manifests in a folder.
func validate(t *testing.T, dir string) error {
	t.Helper()
	certificates := module(t, "github.com/cert-manager/cert-manager@v1.18.2") + "/deploy/crds"
	_, err := run("", tool(t, "kubectl-validate"), "--version", kubernetes, "--local-crds", crds(t)+","+certificates, dir)
	return err
}

func TestManifestsAreValid(t *testing.T) {
	dir := t.TempDir()
	for _, r := range rendered(t) {
		if len(r.objects) == 0 {
			t.Errorf("%s is empty", r.name)
		}
		write(t, filepath.Join(dir, strings.ReplaceAll(r.name, "/", "-")+".yaml"), r.yaml)
	}
	if err := validate(t, dir); err != nil {
		t.Error(err)
	}
}

// TestValidationFindsMistakes shows that TestManifestsAreValid can fail.
func TestValidationFindsMistakes(t *testing.T) {
	redis, monitoring := overlay(t, "redis"), release(t, "monitoring")
	for _, c := range []struct {
		from      rendering
		right, no string
	}{
		{redis, "readOnlyRootFilesystem", "readOnlyRootFileSystem"},
		{redis, "periodSeconds: 2\n", "periodSeconds: often\n"},
		{monitoring, "interval: 30s", "interval: often"},
		{monitoring, "alert: RLSFailing", "alarm: RLSFailing"},
		{release(t, "certificates"), "issuerRef:", "issuer:"},
	} {
		dir, wrong := t.TempDir(), strings.Replace(c.from.yaml, c.right, c.no, 1)
		if wrong == c.from.yaml {
			t.Errorf("%s has no %q", c.from.name, c.right)
		}
		write(t, filepath.Join(dir, "wrong.yaml"), wrong)
		if err := validate(t, dir); err == nil {
			t.Errorf("%s passes with %q", c.from.name, c.no)
		}
	}
}

// TestPodsAreRestricted compares our own manifests with the strictest of the Pod
// Security Standards. They also name their resources, mount no token and keep
// profiles on the loopback.
func TestPodsAreRestricted(t *testing.T) {
	for _, w := range workloads(t) {
		uid := 65534
		if w.name == "chart/openshift" {
			uid = 0 // none is named
		}
		if s := w.pod.SecurityContext; !s.RunAsNonRoot || s.RunAsUser != uid || s.RunAsGroup != uid || s.SeccompProfile.Type != "RuntimeDefault" {
			t.Errorf("%s: %+v", w.name, s)
		}
		if token := w.pod.AutomountServiceAccountToken; token == nil || *token || w.pod.ServiceAccountName == "" {
			t.Errorf("%s: service account %q with its token", w.name, w.pod.ServiceAccountName)
		}
		for _, c := range append([]container{w.c}, w.pod.InitContainers...) {
			if s := c.SecurityContext; !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || strings.Join(s.Capabilities.Drop, "") != "ALL" {
				t.Errorf("%s: container %s: %+v", w.name, c.Name, s)
			}
		}
		if limit := w.c.Resources.Limits["memory"]; limit == "" || limit != w.c.Resources.Requests["memory"] || w.c.Resources.Requests["cpu"] == "" {
			t.Errorf("%s: resources %+v", w.name, w.c.Resources)
		} else if heap, err := strconv.Atoi(w.env["GOMEMLIMIT"]); err != nil || heap > bytesOf(t, limit)*96/100 || heap < bytesOf(t, limit)*90/100 {
			// 5 to 10 % are left for memory outside of Go's heap, such as sockets.
			t.Errorf("%s: GOMEMLIMIT %s (%v) of %s", w.name, w.env["GOMEMLIMIT"], err, limit)
		}
		if w.env["DEBUG_HOST"] != "127.0.0.1" {
			t.Errorf("%s: profiles are served at %q", w.name, w.env["DEBUG_HOST"])
		}
	}
}

// TestPodsHaveTimeToDrain: terminationGracePeriodSeconds is longer than
// DRAIN_PERIOD and the 5 s of calls in flight.
func TestPodsHaveTimeToDrain(t *testing.T) {
	for _, w := range workloads(t) {
		drain, err := time.ParseDuration(w.env["DRAIN_PERIOD"])
		if grace := time.Duration(w.pod.TerminationGracePeriodSeconds) * time.Second; err != nil || drain < 3*time.Second || grace <= drain+5*time.Second {
			t.Errorf("%s: drains for %v of %v (%v)", w.name, drain, grace, err)
		}
	}
}

// TestSelectorsSelectThePods of their own installation. An empty selector of a
// budget or a policy would select every pod of the namespace.
func TestSelectorsSelectThePods(t *testing.T) {
	selects := func(name string, labels, selector map[string]string) {
		if len(selector) == 0 {
			t.Errorf("%s selects everything", name)
		}
		for label, value := range selector {
			if labels[label] != value {
				t.Errorf("%s selects %s=%s; there is %v", name, label, value, labels)
			}
		}
	}
	kinds := map[string]int{}
	for _, w := range workloads(t) {
		d := w.one(t, "Deployment")
		labels := d.Spec.Template.Metadata.Labels
		ports := map[string]int{}
		for _, p := range w.c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		if len(w.pod.TopologySpreadConstraints) == 0 {
			t.Errorf("%s: nothing spreads the pods", w.name)
		}
		for _, s := range w.pod.TopologySpreadConstraints {
			selects(w.name+" spread", labels, s.LabelSelector.MatchLabels)
		}
		for _, o := range w.objects {
			name := w.name + " " + o.Kind + " " + o.Metadata.Name
			kinds[o.Kind]++
			switch o.Kind {
			case "Deployment", "PodDisruptionBudget":
				selects(name, labels, asStrings(o.Spec.Selector["matchLabels"]))
			case "Service":
				selects(name, labels, asStrings(o.Spec.Selector))
				for _, p := range o.Spec.Ports {
					if ports[p.TargetPort] != p.Port {
						t.Errorf("%s: port %d leads to %q, which is %d", name, p.Port, p.TargetPort, ports[p.TargetPort])
					}
				}
			case "NetworkPolicy":
				selects(name, labels, o.Spec.PodSelector.MatchLabels)
				open := 0
				for _, in := range o.Spec.Ingress {
					for _, p := range in.Ports {
						if ports[fmt.Sprint(p.Port)] != 0 {
							open++
						}
					}
				}
				if open != len(ports) {
					t.Errorf("%s lets in to %d of %v", name, open, ports)
				}
			case "HorizontalPodAutoscaler":
				if ref := o.Spec.ScaleTargetRef; ref.Kind != "Deployment" || ref.Name != d.Metadata.Name || d.Spec.Replicas != nil {
					t.Errorf("%s scales %+v, which has %v replicas of its own", name, ref, d.Spec.Replicas)
				}
			}
		}
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "HorizontalPodAutoscaler"} {
		if kinds[kind] < 3 {
			t.Errorf("%d of kind %s", kinds[kind], kind)
		}
	}
}

// TestServiceMonitorsFindTheMetrics: a ServiceMonitor scrapes each pod once, although
// there are two Services.
func TestServiceMonitorsFindTheMetrics(t *testing.T) {
	r := release(t, "monitoring")
	m := r.one(t, "ServiceMonitor")
	found := 0
	for _, s := range r.all("Service") {
		matches := true
		for label, value := range asStrings(m.Spec.Selector["matchLabels"]) {
			matches = matches && s.Metadata.Labels[label] == value
		}
		for _, p := range s.Spec.Ports {
			if matches && p.Name == m.Spec.Endpoints[0].Port && p.Port == 9090 {
				found++
			}
		}
	}
	if found != 1 || len(m.Spec.Endpoints) != 1 {
		t.Errorf("%s finds %d ports", r.name, found)
	}
}

// TestCountersInMemory: a Deployment that counts in memory has one replica, and
// MEMORY_MAX_KEYS counters of the largest size leave a third of GOMEMLIMIT to
// requests.
func TestCountersInMemory(t *testing.T) {
	const longest = 400 // bytes a key, docs/backends.md
	seen := 0
	for _, w := range workloads(t) {
		if w.env["BACKEND_TYPE"] != "memory" {
			continue
		}
		seen++
		if n := w.Spec.Replicas; n == nil || *n != 1 || len(w.all("HorizontalPodAutoscaler")) > 0 {
			t.Errorf("%s: more than one replica, and each counts for itself", w.name)
		}
		keys, err := strconv.Atoi(w.env["MEMORY_MAX_KEYS"])
		if err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
		if heap, err := strconv.Atoi(w.env["GOMEMLIMIT"]); err != nil || keys*longest > heap*2/3 {
			t.Errorf("%s: %d keys, GOMEMLIMIT %s (%v)", w.name, keys, w.env["GOMEMLIMIT"], err)
		}
	}
	if seen < 2 {
		t.Errorf("%d Deployments count in memory", seen)
	}
}

// TestReplicasFindTheirNumber: REPLICAS_DNS names a headless Service of the same
// installation wherever the pods share a store.
func TestReplicasFindTheirNumber(t *testing.T) {
	seen := 0
	for _, w := range workloads(t, ownOverlay(t, 1, 2)) {
		if w.env["BACKEND_TYPE"] == "memory" {
			continue
		}
		seen++
		if !slices.ContainsFunc(w.all("Service"), func(o object) bool {
			return o.Metadata.Name == w.env["REPLICAS_DNS"] && o.Spec.ClusterIP == "None"
		}) {
			t.Errorf("%s: REPLICAS_DNS=%q is no headless Service", w.name, w.env["REPLICAS_DNS"])
		}
	}
	if seen < 5 {
		t.Errorf("%d Deployments share a store", seen)
	}
}

// settingRow is the beginning of a setting's row in docs/settings.md.
var settingRow = regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)`")

// TestVariablesExist: docs/settings.md has every variable of a container.
func TestVariablesExist(t *testing.T) {
	documented := map[string]bool{"GOMEMLIMIT": true, "MEMORY_LIMIT_MI": true}
	for _, m := range settingRow.FindAllStringSubmatch(read(t, "docs/settings.md"), -1) {
		documented[m[1]] = true
	}
	seen := 0
	for _, r := range rendered(t) {
		for _, d := range r.all("Deployment") {
			c := d.Spec.Template.Spec.ours(t)
			names := slices.Collect(maps.Keys(r.environment(t, c)))
			for _, e := range c.Env {
				names = append(names, e.Name)
			}
			for _, name := range names {
				seen++
				if !documented[name] {
					t.Errorf("%s: there is no setting %s", r.name, name)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d variables", seen)
	}
}

// TestEnvoyGatewayConfiguration: the component and the values for the chart of Envoy
// Gateway name our image and settings that exist, and the component leaves the rest of
// the configuration as it is.
func TestEnvoyGatewayConfiguration(t *testing.T) {
	dir := t.TempDir()
	component, err := filepath.Rel(dir, absolute(t, filepath.Join(root, "deploy/k8s/components/envoy-gateway")))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kustomization.yaml"), "resources: [theirs.yaml]\ncomponents: ["+component+"]\n")
	write(t, filepath.Join(dir, "theirs.yaml"), `
apiVersion: v1
kind: ConfigMap
metadata: {name: envoy-gateway-config, namespace: envoy-gateway-system}
data:
  envoy-gateway.yaml: |
    kind: EnvoyGateway
    provider:
      kubernetes:
        rateLimitDeployment: {container: {image: "docker.io/envoyproxy/ratelimit:17b1956c"}}
        shutdownManager: {image: "docker.io/envoyproxy/gateway:v1.9.0"}
`)
	out, err := built(dir)
	if err != nil {
		t.Fatal(err)
	}
	type configuration struct {
		Provider struct {
			Kubernetes struct {
				RateLimitDeployment struct{ Container container } `yaml:"rateLimitDeployment"`
				ShutdownManager     struct{ Image string }        `yaml:"shutdownManager"`
			}
		}
		RateLimit struct {
			Backend struct {
				Type  string
				Redis struct{ URL string }
			}
		} `yaml:"rateLimit"`
	}
	check := func(c configuration, image string) {
		t.Helper()
		env := c.Provider.Kubernetes.RateLimitDeployment.Container.Env
		if !strings.Contains(image, "/rls:") || len(env) == 0 || c.RateLimit.Backend.Redis.URL == "" || c.RateLimit.Backend.Type != "Redis" {
			t.Errorf("image %s, %+v", image, c)
		}
		for _, e := range env {
			if !strings.Contains(read(t, "docs/settings.md"), "| `"+e.Name+"` |") {
				t.Errorf("there is no setting %s", e.Name)
			}
		}
	}
	var patched configuration
	r := rendering{name: "component/envoy-gateway", yaml: out, objects: parse(t, out)}
	if err := yaml.Unmarshal([]byte(r.one(t, "ConfigMap").Data["envoy-gateway.yaml"]), &patched); err != nil {
		t.Fatal(err)
	}
	check(patched, patched.Provider.Kubernetes.RateLimitDeployment.Container.Image)
	if image := patched.Provider.Kubernetes.ShutdownManager.Image; image != "docker.io/envoyproxy/gateway:v1.9.0" || len(r.objects) != 1 {
		t.Errorf("shutdownManager.image is %q in\n%s", image, out)
	}

	var values struct {
		Global struct {
			Images struct{ Ratelimit struct{ Image string } }
		}
		Config struct {
			EnvoyGateway configuration `yaml:"envoyGateway"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, gateways+"/envoy-gateway/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	check(values.Config.EnvoyGateway, values.Global.Images.Ratelimit.Image)
}

// shownYAML returns these YAML blocks of docs/kubernetes.md as one text. They are counted from 0.
func shownYAML(t *testing.T, blocks ...int) (text string) {
	t.Helper()
	shown := regexp.MustCompile("(?sm)^( *)```yaml\n(.*?)^ *```").FindAllStringSubmatch(read(t, "docs/kubernetes.md"), -1)
	for _, block := range blocks {
		if block >= len(shown) {
			t.Fatalf("docs/kubernetes.md has %d YAML blocks, want number %d", len(shown), block)
		}
		text += strings.TrimPrefix(strings.ReplaceAll("\n"+shown[block][2], "\n"+shown[block][1], "\n"), "\n")
	}
	return text
}

// TestChartOfOnesOwn: the values that docs/kubernetes.md begins with make what they say.
func TestChartOfOnesOwn(t *testing.T) {
	values := filepath.Join(t.TempDir(), "my-values.yaml")
	write(t, values, shownYAML(t, 0))
	r := template(t, "docs/kubernetes.md", "--values", values)
	pod := r.one(t, "Deployment").Spec.Template.Spec
	c := pod.ours(t)
	env := r.environment(t, c)
	if env["REDIS_URL"] != "redis.databases:6379" || env["REDIS_AUTH_FILE"] == "" || c.Image != "registry.example.org/rls:1" {
		t.Errorf("image %s, %v", c.Image, env)
	}
	if len(r.all("HorizontalPodAutoscaler")) != 1 || !strings.Contains(r.yaml, "edge.yaml:") || !strings.Contains(r.yaml, "secretName: redis-password") {
		t.Errorf("autoscaler, rules or Secret are missing in\n%s", r.yaml)
	}
}

// TestChartBehindGateways: the chart, installed as the pages say, has the rules and the Service that
// the files of their gateways name.
func TestChartBehindGateways(t *testing.T) {
	values := filepath.Join(t.TempDir(), "my-values.yaml")
	write(t, values, shownYAML(t, 0))
	for page, names := range map[string][]string{
		"istio":   {"/istio/envoyfilter.yaml", "outbound|8081||%s.%s.svc", "domain: istio"},
		"contour": {"/contour/extensionservice.yaml", "metadata: {name: %s, namespace: %s}", "domain: contour"},
	} {
		command := regexp.MustCompile(`(?m)^helm install (\S+) deploy/helm/rls --namespace (\S+) (.*)$`).FindStringSubmatch(read(t, "docs/"+page+".md"))
		if command == nil {
			t.Fatalf("docs/%s.md does not install the chart", page)
		}
		args := strings.NewReplacer("'", "", "my-values.yaml", values, "--create-namespace ", "").Replace(command[3])
		r := named(t, page, command[1], append([]string{"--namespace", command[2]}, strings.Fields(args)...)...)
		name := r.one(t, "Deployment").Metadata.Name
		if file, want := read(t, gateways+names[0]), fmt.Sprintf(names[1], name, command[2]); !strings.Contains(file, want) {
			t.Errorf("docs/%s.md installs what %s does not name: %q", page, names[0], want)
		}
		if !strings.Contains(r.yaml, names[2]) {
			t.Errorf("docs/%s.md: the rules are missing in\n%s", page, r.yaml)
		}
	}
}

// ownOverlay renders the overlay that these blocks show.
func ownOverlay(t *testing.T, blocks ...int) rendering {
	t.Helper()
	kustomization, dir := shownYAML(t, blocks...), t.TempDir()
	up, err := filepath.Rel(dir, absolute(t, root))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kustomization.yaml"), strings.ReplaceAll(kustomization, "[../", "["+up+"/"))
	write(t, filepath.Join(dir, "edge.yaml"), "domain: edge\n")
	out, err := built(dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, kustomization)
	}
	return rendering{name: "docs/kubernetes.md", yaml: out, objects: parse(t, out)}
}

func TestOverlayOfOnesOwn(t *testing.T) {
	r := ownOverlay(t, 1)
	c := r.one(t, "Deployment").Spec.Template.Spec.ours(t)
	if url := r.environment(t, c)["REDIS_URL"]; url != "redis.databases:6379" || c.Image != "registry.example.org/rls:1" {
		t.Errorf("image %s, REDIS_URL %s", c.Image, url)
	}
	if !strings.Contains(r.yaml, "edge.yaml:") {
		t.Errorf("the rules are missing in\n%s", r.yaml)
	}
}

// TestOverlaysBesideEachOther: with a label of its own, every selector of an
// installation has that label.
func TestOverlaysBesideEachOther(t *testing.T) {
	const instance = "app.kubernetes.io/instance"
	r := ownOverlay(t, 1, 2)
	d := r.one(t, "Deployment")
	labels := d.Spec.Template.Metadata.Labels
	if labels[instance] != "edge" || d.Metadata.Name != "edge-rls" || *d.Spec.Replicas != 3 || len(r.all("HorizontalPodAutoscaler")) > 0 {
		t.Errorf("%s: %v replicas of %v", d.Metadata.Name, *d.Spec.Replicas, labels)
	}
	r.environment(t, d.Spec.Template.Spec.ours(t)) // the ConfigMap has its new name
	for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
		if s.LabelSelector.MatchLabels[instance] != "edge" {
			t.Errorf("pods spread from %v", s.LabelSelector.MatchLabels)
		}
	}
	for _, o := range r.objects {
		selector := map[string]string{instance: "edge"}
		switch o.Kind {
		case "Deployment", "PodDisruptionBudget":
			selector = asStrings(o.Spec.Selector["matchLabels"])
		case "Service":
			selector = asStrings(o.Spec.Selector)
		case "NetworkPolicy":
			selector = o.Spec.PodSelector.MatchLabels
		}
		if selector[instance] != "edge" || !strings.HasPrefix(o.Metadata.Name, "edge-") {
			t.Errorf("%s %s selects %v", o.Kind, o.Metadata.Name, selector)
		}
	}
}

// TestOverlayForTables has the rules and the tables of two ConfigMaps in one folder.
func TestOverlayForTables(t *testing.T) {
	r := ownOverlay(t, 1, 3)
	if volumes := regexp.MustCompile(`(?s)name: rls-rules\S*\n.*?name: tenants\n`).FindString(r.yaml); volumes == "" || !strings.Contains(r.yaml, "name: rules\n        projected:") {
		t.Errorf("no volume has both:\n%s", r.yaml)
	}
}

// TestOverlayForOpenShift names no user, and keeps the rest of the restrictions.
func TestOverlayForOpenShift(t *testing.T) {
	r := ownOverlay(t, 1, 4)
	if s := r.one(t, "Deployment").Spec.Template.Spec.SecurityContext; s.RunAsUser != 0 || s.RunAsGroup != 0 || !s.RunAsNonRoot || s.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("%+v", s)
	}
}

// TestCopies: the rules that kustomize and Helm both need are the same, and the quick start's,
// since kustomize reads no file outside of its folder.
func TestCopies(t *testing.T) {
	if read(t, chart+"/files/rules.yaml") != read(t, "deploy/k8s/base/rules.yaml") {
		t.Errorf("differs from what it copies: cp deploy/k8s/base/rules.yaml %s/files/rules.yaml", chart)
	}
	_, mine, _ := strings.Cut(read(t, "deploy/k8s/base/rules.yaml"), "\ndomain:")
	_, theirs, _ := strings.Cut(read(t, "config/quickstart.yaml"), "\ndomain:")
	if mine != theirs {
		t.Errorf("deploy/k8s/base/rules.yaml has\n%s\nconfig/quickstart.yaml has\n%s", mine, theirs)
	}
}

// gateway reports whether a gateway brings the manifest.
func gateway(r rendering) bool {
	return slices.Contains([]string{"overlay/istio", "overlay/contour"}, r.name)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func asStrings(labels any) map[string]string {
	all := map[string]string{}
	m, _ := labels.(map[string]any)
	for name, value := range m {
		all[name] = fmt.Sprint(value)
	}
	return all
}

// bytesOf returns a quantity of memory in bytes.
func bytesOf(t *testing.T, quantity string) int {
	t.Helper()
	for suffix, unit := range map[string]int{"Mi": 1 << 20, "Gi": 1 << 30} {
		if number, ok := strings.CutSuffix(quantity, suffix); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return n * unit
		}
	}
	t.Fatalf("%q is not in Mi or Gi", quantity)
	return 0
}
