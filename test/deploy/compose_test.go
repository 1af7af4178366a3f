package deploy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
)

const composeDir = "deploy/compose"

// composeFile is what the tests read of compose.yaml.
type composeFile struct {
	Services map[string]struct {
		Build struct {
			Context string
			Args    map[string]string
		}
		Image       string
		Command     []string
		Environment map[string]string
		Volumes     []string
		Ports       []string
		DependsOn   yaml.Node `yaml:"depends_on"`
	}
}

// compose reads compose.yaml with the variables of .env.
func compose(t *testing.T) (c composeFile, env map[string]string) {
	t.Helper()
	env = map[string]string{}
	for line := range strings.Lines(read(t, composeDir+"/.env")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			env[name] = value
		}
	}
	used := map[string]bool{}
	text := regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(read(t, composeDir+"/compose.yaml"), func(variable string) string {
		name := strings.Trim(variable, "${}")
		used[name] = true
		if env[name] == "" {
			t.Errorf(".env has no %s", name)
		}
		return env[name]
	})
	for name := range env {
		if !used[name] {
			t.Errorf("compose.yaml does not use %s of .env", name)
		}
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c, env
}

// TestComposeFile: its images are settings, its files exist, its settings are known, and
// what one service asks of another is there.
func TestComposeFile(t *testing.T) {
	c, env := compose(t)
	if len(c.Services) != 6 {
		t.Errorf("%d services", len(c.Services))
	}
	images := regexp.MustCompile(`(?m)^    image: (.*)$`).FindAllStringSubmatch(read(t, composeDir+"/compose.yaml"), -1)
	for _, image := range images {
		if !strings.HasPrefix(image[1], "${") {
			t.Errorf("the image %s is not a setting of .env", image[1])
		}
	}
	for name, s := range c.Services {
		if s.Image == "" {
			t.Errorf("%s has no image", name)
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(filepath.Join(root, composeDir, source)); err != nil || !strings.HasSuffix(v, ":ro") {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s opens %s to others than the loopback", name, p)
			}
		}
		var needs []string
		for _, n := range s.DependsOn.Content {
			needs = append(needs, n.Value) // a list, or a mapping with its names first
		}
		for _, need := range needs {
			if _, found := c.Services[need]; need != "" && !found {
				t.Errorf("%s depends on %s, which does not exist", name, need)
			}
		}
	}
	rls := c.Services["rls"]
	for name := range rls.Environment {
		if !strings.Contains(read(t, "docs/settings.md"), "| `"+name+"` |") {
			t.Errorf("there is no setting %s", name)
		}
	}
	if rls.Build.Context != "../.." || rls.Build.Args["GO_VERSION"] != env["GO_VERSION"] {
		t.Errorf("the service is built from %+v", rls.Build)
	}
	if !strings.Contains(read(t, "Dockerfile"), "ARG GO_VERSION="+env["GO_VERSION"]+"\n") {
		t.Errorf("Dockerfile has another version of Go than %s", env["GO_VERSION"])
	}
}

// TestComposeRuns runs the service and both Envoys with the files and settings of
// compose.yaml, and Redis: three requests pass.
func TestComposeRuns(t *testing.T) {
	c, _ := compose(t)
	env := c.Services["rls"].Environment
	if env["REDIS_URL"] != "redis:6379" || env["ADMIN_HOST"] != "0.0.0.0" {
		t.Errorf("others cannot be reached with %v", env)
	}
	// The paths in the container, as on this machine.
	for _, v := range c.Services["rls"].Volumes {
		on, in, _ := strings.Cut(strings.TrimSuffix(v, ":ro"), ":")
		on = absolute(t, filepath.Join(root, composeDir, on))
		switch in {
		case filepath.Join(env["RUNTIME_ROOT"], env["RUNTIME_APPDIRECTORY"]):
			env["RUNTIME_ROOT"], env["RUNTIME_APPDIRECTORY"] = filepath.Split(on)
		case env["ADMIN_TOKEN_FILE"]:
			env["ADMIN_TOKEN_FILE"] = on
		default:
			t.Errorf("nothing reads %s", v)
		}
	}
	oneRedis(t, env)
	env["ADMIN_HOST"], env["ADMIN_PORT"] = "127.0.0.1", "0"
	p := start(t, []string{"ratelimit", c.Services["rls"].Command[0]}, env)

	upstream := testenv.Envoy(t, onLoopback(read(t, composeDir+"/upstream.yaml"), nil))
	envoy := testenv.Envoy(t, onLoopback(read(t, composeDir+"/envoy.yaml"), map[string]string{
		"rls, port_value: 8081": p.grpc, "upstream, port_value: 8090": upstream.Listener("upstream"),
	}))
	var codes []int
	for range 4 {
		resp, err := http.Get("http://" + envoy.Listener("front"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == http.StatusOK && string(body) != "hello from the upstream\n" {
			t.Errorf("%s (%v)", body, err)
		}
		_ = resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	if want := []int{200, 200, 200, 429}; !slices.Equal(codes, want) {
		t.Errorf("answers %v, want %v", codes, want)
	}
	if !strings.Contains(p.get("http://"+p.metrics+"/metrics"), "rls_requests_total") {
		t.Error("no metrics for Prometheus")
	}
}

// onLoopback gives the listeners of an Envoy free ports of the loopback, and puts the
// addresses of running servers in place of "HOST, port_value: PORT".
func onLoopback(config string, servers map[string]string) string {
	pairs := []string{"address: 0.0.0.0, port_value: 8000", "address: 127.0.0.1, port_value: 0", "address: 0.0.0.0, port_value: 8090", "address: 127.0.0.1, port_value: 0"}
	for from, to := range servers {
		host, port, _ := net.SplitHostPort(to)
		pairs = append(pairs, "address: "+from, fmt.Sprintf("address: %s, port_value: %s", host, port))
	}
	return strings.NewReplacer(pairs...).Replace(config)
}

// TestComposeMonitors: Prometheus reads its configuration and the alerts of the other
// manifests, and Grafana finds Prometheus and the dashboard.
func TestComposeMonitors(t *testing.T) {
	c, _ := compose(t)
	if _, err := run(filepath.Join(root, composeDir), tool(t, "promtool"), "check", "config", "--lint=all", "prometheus.yaml"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(read(t, composeDir+"/prometheus.yaml"), `["rls:9090"]`) || c.Services["rls"].Environment["USE_PROMETHEUS"] != "true" {
		t.Error("Prometheus does not ask the service")
	}
	var datasource struct {
		Datasources []struct{ Type, URL string }
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for path, into := range map[string]any{"datasource.yaml": &datasource, "dashboards.yaml": &dashboards} {
		if err := yaml.Unmarshal([]byte(read(t, composeDir+"/grafana/"+path)), into); err != nil {
			t.Fatal(err)
		}
	}
	if datasource.Datasources[0].URL != "http://prometheus:9090" || datasource.Datasources[0].Type != "prometheus" {
		t.Errorf("Grafana asks %+v", datasource)
	}
	want := dashboards.Providers[0].Options.Path + "/rls.json"
	if !slices.Contains(c.Services["grafana"].Volumes, "../helm/rls/files/dashboard.json:"+want+":ro") ||
		c.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] != want {
		t.Errorf("the dashboard is not at %s", want)
	}
}
