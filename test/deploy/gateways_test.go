package deploy_test

import (
	"encoding/json"
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

// module returns the folder of a Go module in which a gateway publishes its schemas.
func module(t *testing.T, version string) string {
	t.Helper()
	out, err := run(t.TempDir(), "go", "mod", "download", "-json", version)
	if err != nil {
		t.Skipf("%s cannot be had: %v", version, err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	return m.Dir
}

// TestGatewayFilesAreValid: the gateways' own schemas accept the files. That of a
// QuotaPolicy is in no module.
func TestGatewayFilesAreValid(t *testing.T) {
	envoyGateway := module(t, "github.com/envoyproxy/gateway@v1.9.1") + "/charts/gateway-crds-helm/templates/generated/"
	schemas, files := t.TempDir(), t.TempDir()
	for _, path := range []string{
		module(t, "istio.io/api@v1.31.1") + "/kubernetes/customresourcedefinitions.gen.yaml",
		module(t, "github.com/projectcontour/contour@v1.33.8") + "/examples/contour/01-crds.yaml",
		envoyGateway + "gateway.envoyproxy.io_backendtrafficpolicies.yaml",
		envoyGateway + "gateway.envoyproxy.io_securitypolicies.yaml",
		filepath.Dir(filepath.Dir(envoyGateway)) + "/standard-gatewayapi-crds.yaml",
		module(t, "github.com/kedacore/keda/v2@v2.17.2") + "/config/crd/bases/keda.sh_scaledobjects.yaml",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Envoy Gateway's are templates of its chart.
		write(t, filepath.Join(schemas, filepath.Base(path)), regexp.MustCompile(`(?m)^\{\{.*\n`).ReplaceAllString(string(text), ""))
	}
	valid := func() error {
		_, err := run("", tool(t, "kubectl-validate"), "--version", kubernetes, "--local-crds", schemas, files)
		return err
	}
	for name, field := range map[string]string{
		"envoy-gateway/policy.yaml": "clientSelectors", "istio/envoyfilter.yaml": "configPatches",
		"contour/extensionservice.yaml": "timeoutPolicy", "contour/httpproxy.yaml": "headerName",
		"../k8s/examples/keda.yaml": "triggers", "../k8s/examples/page.yaml": "redirectURL",
	} {
		text := read(t, gateways+"/"+name)
		copied := filepath.Join(files, filepath.Base(name))
		write(t, copied, strings.ReplaceAll(text, field, field+"s"))
		if err := valid(); err == nil || !strings.Contains(err.Error(), field+"s") {
			t.Errorf("%s: %ss is no mistake: %v", name, field, err)
		}
		write(t, copied, text)
	}
	if err := valid(); err != nil {
		t.Error(err)
	}
}

// TestAIGatewayService: the pod is ready while AI Gateway's controller does not answer yet,
// and its names are those that AI Gateway expects.
func TestAIGatewayService(t *testing.T) {
	text := read(t, gateways+"/ai-gateway/ratelimit.yaml")
	r := rendering{name: "gateways/ai-gateway", yaml: text, objects: parse(t, text)}
	if name := r.all("Service")[0].Metadata.Name; name != "envoy-ai-gateway-ratelimit" || strings.Count(text, "\n  namespace: envoy-gateway-system\n") != 3 {
		t.Errorf("the Service is %s, or in another namespace", name)
	}
	pod := r.one(t, "Deployment").Spec.Template.Spec
	c := pod.ours(t)
	env := r.environment(t, c)
	if env["CONFIG_GRPC_XDS_NODE_ID"] != "envoy-ai-gateway-ratelimit" || !strings.HasSuffix(env["CONFIG_GRPC_XDS_SERVER_URL"], ":18002") || env["DEFAULT_STRATEGY"] != "" {
		t.Errorf("%v", env)
	}
	env["CONFIG_GRPC_XDS_SERVER_URL"] = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	oneRedis(t, env)
	p := start(t, c.Command, env)
	for _, probe := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		answer(t, p, probe, false)
	}
}

// TestGatewaysFindTheService: names and ports of the Service in deploy/k8s.
func TestGatewaysFindTheService(t *testing.T) {
	service := read(t, "deploy/k8s/base/service.yaml")
	if !strings.Contains(service, "  name: rls\n") || !strings.Contains(service, "{name: grpc, port: 8081,") {
		t.Fatal("the Service rls has no port grpc 8081")
	}
	for path, want := range map[string]string{
		"istio/envoyfilter.yaml":        "cluster_name: outbound|8081||rls.default.svc.cluster.local",
		"contour/extensionservice.yaml": "services: [{name: rls, port: 8081}]",
	} {
		if !strings.Contains(read(t, gateways+"/"+path), want) {
			t.Errorf("%s does not have %s", path, want)
		}
	}
}

// TestContourRules: each descriptor of the HTTPProxy has a limit in the rules, which are
// of the domain that Contour is told.
func TestContourRules(t *testing.T) {
	if err := binaries(); err != nil {
		t.Fatal(err)
	}
	type policy struct {
		Global struct {
			Descriptors []struct {
				Entries []map[string]map[string]string
			}
		}
	}
	var proxy struct {
		Spec struct {
			VirtualHost struct {
				RateLimitPolicy policy `yaml:"rateLimitPolicy"`
			} `yaml:"virtualhost"`
			Routes []struct {
				RateLimitPolicy policy `yaml:"rateLimitPolicy"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, gateways+"/contour/httpproxy.yaml")), &proxy); err != nil {
		t.Fatal(err)
	}
	domain := regexp.MustCompile(`#     domain: (\w+)`).FindStringSubmatch(read(t, gateways+"/contour/extensionservice.yaml"))[1]
	policies := []policy{proxy.Spec.VirtualHost.RateLimitPolicy}
	for _, r := range proxy.Spec.Routes {
		policies = append(policies, r.RateLimitPolicy)
	}
	explained := 0
	for _, p := range policies {
		for _, d := range p.Global.Descriptors {
			var entries []string
			for _, e := range d.Entries {
				for kind, fields := range maps.All(e) {
					entries = append(entries, map[string]string{
						"remoteAddress": "remote_address=192.0.2.1",
						"genericKey":    fields["key"] + "=" + fields["value"],
						"requestHeader": fields["descriptorKey"] + "=ann",
					}[kind])
				}
			}
			explained++
			out, err := run(root, filepath.Join(binaryDir, "rls"), "explain", gateways+"/contour/rules.yaml", "--domain", domain, "--descriptor", strings.Join(entries, ","))
			if err != nil || !strings.Contains(out, " per minute") {
				t.Errorf("%v has no limit: %v\n%s", entries, err, out)
			}
		}
	}
	if explained != 3 {
		t.Errorf("%d descriptors", explained)
	}
	for _, gateway := range []string{"contour", "istio"} {
		if _, err := run(root, filepath.Join(binaryDir, "rls"), "check", "--strict", gateways+"/"+gateway+"/rules.yaml"); err != nil {
			t.Error(err)
		}
	}
}

// TestGatewayFilesExplainThemselves: each says how it is applied and what to change.
func TestGatewayFilesExplainThemselves(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, gateways, "*", "*.yaml"))
	if err != nil || len(files) < 9 {
		t.Fatalf("%v %v", files, err)
	}
	readme := read(t, gateways+"/README.md")
	for _, f := range files {
		name, err := filepath.Rel(filepath.Join(root, gateways), f)
		if err != nil {
			t.Fatal(err)
		}
		text := read(t, gateways+"/"+name)
		if !strings.Contains(readme, "("+name+")") {
			t.Errorf("README.md does not name %s", name)
		}
		if !strings.HasSuffix(name, "rules.yaml") && !slices.ContainsFunc([]string{"kubectl apply -f ", "--values ", "--from-file "}, func(how string) bool {
			return strings.Contains(text, how+filepath.Base(name)) && strings.Contains(text, "# Change: ")
		}) {
			t.Errorf("%s does not say how to apply it and what to change", name)
		}
	}
}
