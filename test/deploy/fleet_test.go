package deploy_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// TestFleetIsForItsPodsOnly: the headless Service leads to the admin port, which is open
// to the pods of the installation and to nobody else.
func TestFleetIsForItsPodsOnly(t *testing.T) {
	r := release(t, "fleet")
	d := r.one(t, "Deployment")
	env := r.environment(t, d.Spec.Template.Spec.ours(t))
	var own []map[string]any // the peers that are the pods themselves
	own = append(own, map[string]any{"podSelector": map[string]any{"matchLabels": d.Spec.Selector["matchLabels"]}})
	if labels := asStrings(d.Spec.Selector["matchLabels"]); len(labels) != 2 {
		t.Errorf("%s: pods are selected by %v", r.name, labels)
	}
	policy := r.one(t, "NetworkPolicy").Spec
	in, out := 0, 0
	for _, rule := range policy.Ingress {
		for _, p := range rule.Ports {
			if fmt.Sprint(p.Port) == "admin" {
				in++
				if fmt.Sprint(rule.From) != fmt.Sprint(own) || len(rule.Ports) != 1 {
					t.Errorf("%s: %v may come to %v", r.name, rule.From, rule.Ports)
				}
			}
		}
	}
	for _, rule := range policy.Egress {
		for _, p := range rule.Ports {
			if fmt.Sprint(p.Port) == "6071" && fmt.Sprint(rule.To) == fmt.Sprint(own) {
				out++
			}
		}
	}
	if in != 1 || out != 1 {
		t.Errorf("%s: %d ways in to the admin port and %d out to it", r.name, in, out)
	}
	var services []string
	for _, s := range r.all("Service") {
		for _, p := range s.Spec.Ports {
			if p.Name == "admin" {
				services = append(services, fmt.Sprintf("%s:%d %s", s.Metadata.Name, p.Port, s.Spec.ClusterIP))
			}
		}
	}
	if want := env["ADMIN_FLEET"] + " None"; len(services) != 1 || services[0] != want {
		t.Errorf("%s: Services %v lead to the admin port, want %s", r.name, services, want)
	}
	if host := env["ADMIN_HOST"]; host != "0.0.0.0" {
		t.Errorf("%s: the admin API listens on %s", r.name, host)
	}
	if r := release(t, "admin"); strings.Contains(r.yaml, "6071") || strings.Contains(r.yaml, "ADMIN_HOST") {
		t.Error("without a fleet the admin port is open")
	}
}

// TestFleetValues: where pods listen with IPv6, which hosts are let in besides, and what
// changes without TLS.
func TestFleetValues(t *testing.T) {
	fleet := []string{"admin.tokenSecret.name=operators", "admin.fleet.enabled=true", "admin.fleet.insecure=true"}
	environment := func(set ...string) map[string]string {
		r := render(t, append(slices.Clone(fleet), set...)...)
		return r.environment(t, r.one(t, "Deployment").Spec.Template.Spec.ours(t))
	}
	names := "test-rls-headless.default,test-rls-headless.default.svc,test-rls-headless.default.svc.cluster.local"
	for _, c := range []struct {
		set  []string
		want map[string]string
	}{
		{nil, map[string]string{"ADMIN_HOST": "0.0.0.0", "ADMIN_ALLOWED_HOSTS": names, "ADMIN_USE_TLS": "", "ADMIN_FLEET_TLS_CACERT": "", "ADMIN_FLEET": "test-rls-headless:6071"}},
		{[]string{"settings.HOST=::", "settings.ADMIN_ALLOWED_HOSTS=rls.example.org"}, map[string]string{"ADMIN_HOST": "::", "ADMIN_ALLOWED_HOSTS": names + ",rls.example.org"}},
		{[]string{"settings.ADMIN_HOST=::"}, map[string]string{"ADMIN_HOST": "::"}},
		{[]string{"admin.tls.secret=tls", "admin.tls.ca=ca.crt"}, map[string]string{"ADMIN_USE_TLS": "true", "ADMIN_FLEET_TLS_CACERT": "/etc/rls/admin-tls/ca.crt"}},
	} {
		env := environment(c.set...)
		for name, want := range c.want {
			if env[name] != want {
				t.Errorf("%v: %s=%s, want %s", c.set, name, env[name], want)
			}
		}
	}
	r := render(t, "admin.tokenSecret.name=operators", "admin.tls.secret=tls", "admin.tls.ca=ca.crt")
	mounted := ""
	for _, v := range r.one(t, "Deployment").Spec.Template.Spec.Volumes {
		if v.Secret.SecretName == "tls" {
			mounted = fmt.Sprint(v.Secret.Items)
		}
	}
	if want := "[{tls.crt tls.crt} {tls.key tls.key} {ca.crt ca.crt}]"; mounted != want {
		t.Errorf("of the Secret %s is mounted, want %s", mounted, want)
	}
	if strings.Contains(r.yaml, "ADMIN_FLEET") {
		t.Error("TLS alone makes a fleet, and the program refuses a CA without one")
	}
}

// TestFleetAnswers: two pods with the environment and the files of the manifests answer
// for each other, under the names of the Service and through kubectl port-forward, and the
// example of rls top --help works with them.
func TestFleetAnswers(t *testing.T) {
	r := release(t, "fleet")
	c := r.one(t, "Deployment").Spec.Template.Spec.ours(t)
	disk, secret := t.TempDir(), testenv.Certs(t)
	env := r.environment(t, c)
	oneRedis(t, env)
	files := map[string]string{"ADMIN_TOKEN_FILE": "ann write 0123456789abcdef\n", "ADMIN_TLS_CERT": file(t, secret.ServerCertFile), "ADMIN_TLS_KEY": file(t, secret.ServerKeyFile)}
	write(t, filepath.Join(disk, "etc/rls/rules/rules.yaml"), read(t, "config/quickstart.yaml"))
	for name, value := range env {
		if strings.HasPrefix(value, "/etc/rls") {
			env[name] = filepath.Join(disk, value)
			if files[name] != "" {
				write(t, env[name], files[name])
			}
		}
	}
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	service, _, _ := strings.Cut(env["ADMIN_FLEET"], ":")
	env["ADMIN_FLEET"] = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", ports[0], ports[1]) // as DNS answers for the Service
	for _, port := range ports {
		one := maps.Clone(env)
		one["ADMIN_PORT"] = fmt.Sprint(port)
		start(t, c.Command, one)
	}
	for _, port := range ports {
		for _, host := range []string{"localhost:6071", service + ".default.svc:6071"} { // the first as through kubectl port-forward
			testenv.Eventually(t, 30*time.Second, func() bool {
				return slices.Equal(answering(t, port, host, secret.Client), []bool{true, true})
			}, fmt.Sprintf("the pod at %d answers for both, asked as %s", port, host))
		}
	}

	t.Setenv("RLS_TOKEN", "0123456789abcdef")
	help, err := run("", filepath.Join(binaryDir, "rls"), "top", "--help")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile(`(?m)^  rls (top .*(?:rls-headless:6071|--fleet).*)$`).FindAllStringSubmatch(help, -1)
	if len(examples) == 0 {
		t.Fatalf("no example asks a fleet in\n%s", help)
	}
	pod := fmt.Sprintf("127.0.0.1:%d", ports[0])
	for _, example := range examples {
		line := regexp.MustCompile(`--addr \S+`).ReplaceAllString(example[1], "--addr "+pod)
		args := strings.Fields(regexp.MustCompile(`--token-file \S+`).ReplaceAllString(line, "")) // RLS_TOKEN is set
		for flag, value := range map[string]string{"--addr": pod, "--format": "json", "--ca": secret.CAFile} {
			if !slices.Contains(args, flag) {
				args = append(args, flag, value)
			}
		}
		if out, err := run("", filepath.Join(binaryDir, "rls"), append(args, "--once", "--tls")...); err != nil || !json.Valid([]byte(out)) {
			t.Errorf("rls %s: %v\n%s", example[1], err, out)
		}
	}
}

// answering asks the pod at a port of the loopback for the status of the fleet, and returns
// for each replica whether it answered.
func answering(t *testing.T, port int, host string, config *tls.Config) (ok []bool) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/v1/status?fleet=true", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	request.Header.Set("Authorization", "Bearer 0123456789abcdef")
	transport := &http.Transport{TLSClientConfig: config.Clone()}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	var status struct{ Replicas []struct{ OK bool } }
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&status) != nil {
		return nil
	}
	for _, replica := range status.Replicas {
		ok = append(ok, replica.OK)
	}
	return ok
}

func file(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
