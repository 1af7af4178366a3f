package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"example.org/rls/internal/testenv"
)

// program has the addresses of a running service, on the loopback.
type program struct{ http, grpc, metrics string }

// start runs a container's command, on free ports, until the test ends.
func start(t *testing.T, command []string, env map[string]string) program {
	t.Helper()
	if err := binaries(); err != nil {
		t.Fatal(err)
	}
	address := func() string { return "127.0.0.1:" + strconv.Itoa(testenv.FreePort(t)) }
	p := program{http: address(), grpc: address(), metrics: address()}
	env = maps.Clone(env)
	for name, addr := range map[string]string{"": p.http, "GRPC_": p.grpc, "DEBUG_": address()} {
		env[name+"HOST"], env[name+"PORT"], _ = strings.Cut(addr, ":")
	}
	env["PROMETHEUS_ADDR"], env["DRAIN_PERIOD"] = p.metrics, "0s"

	cmd := exec.Command(filepath.Join(binaryDir, filepath.Base(command[0])), command[1:]...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v ended: %v\n%s", command, err, log.String())
		}
	})
	testenv.Eventually(t, 30*time.Second, func() bool { return p.get("http://"+p.http+"/healthcheck") != "" }, "the program is healthy")
	return p
}

// get returns the body of a page, "" if it is not answered with 200.
func (p program) get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// hit asks /json about one descriptor and returns the status.
func (p program) hit(t *testing.T, domain, key, value string) int {
	t.Helper()
	body := fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [{"key": %q, "value": %q}]}]}`, domain, key, value)
	resp, err := http.Post("http://"+p.http+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// stores start the stores of these renderings and put their addresses into the
// environment.
var stores = map[string]func(*testing.T, map[string]string){
	"overlay/redis":     oneRedis,
	"overlay/memcached": memcacheds,
	"overlay/istio":     oneRedis,
	"overlay/contour":   oneRedis,
	"chart/defaults":    oneRedis,
	"chart/memory":      func(*testing.T, map[string]string) {},
	"chart/redis-sentinel": func(t *testing.T, env map[string]string) {
		s := testenv.Sentinel(t)
		env["REDIS_URL"] = strings.Join(append([]string{s.MasterName}, s.Addrs()...), ",")
	},
	"chart/redis-cluster": func(t *testing.T, env map[string]string) {
		maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, "REDIS_TLS") }) // the nodes here have none
		env["REDIS_URL"] = strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")
	},
	"chart/memcached": memcacheds,
	"chart/teams":     func(*testing.T, map[string]string) {},
}

func oneRedis(t *testing.T, env map[string]string) { env["REDIS_URL"] = testenv.Redis(t).Addr }

func memcacheds(t *testing.T, env map[string]string) {
	env["MEMCACHE_HOST_PORT"] = testenv.Memcached(t).Addr + "," + testenv.Memcached(t).Addr
}

// TestPodsServe mounts a pod's rules, runs its init containers and the service
// with their environment, and probes as the kubelet does. The manifests of
// gateways have no rules: they get the quick start's.
func TestPodsServe(t *testing.T) {
	names := slices.Sorted(maps.Keys(stores))
	for _, r := range rendered(t) {
		i, found := slices.BinarySearch(names, r.name)
		if !found {
			continue
		}
		names = slices.Delete(names, i, i+1)
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			pod := r.one(t, "Deployment").Spec.Template.Spec
			c := pod.ours(t)
			env := r.environment(t, c)
			stores[r.name](t, env)
			disk := t.TempDir()
			mount(t, r, pod, c, disk, nil)
			for _, before := range pod.InitContainers {
				if out, err := runToEnd(t, r, before, disk); err != nil {
					t.Fatalf("%s: %v\n%s", before.Name, err, out)
				}
			}
			for name, path := range env {
				if name == "RUNTIME_ROOT" || strings.HasSuffix(name, "AUTH_FILE") {
					env[name] = filepath.Join(disk, path)
				}
			}
			p := start(t, c.Command, env)

			for _, probe := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				answer(t, p, probe, gateway(r))
			}
			if env["USE_PROMETHEUS"] == "true" && p.get("http://"+p.metrics+"/metrics") == "" {
				t.Error("no metrics")
			}
			allowed := 0
			for range 8 { // the limit is 3 a minute, and a new minute may begin between them
				if p.hit(t, "quickstart", "generic_key", "hello") == http.StatusOK {
					allowed++
				}
			}
			if allowed < 3 || allowed > 6 {
				t.Errorf("%d of 8 hits pass", allowed)
			}
			if r.name == "chart/teams" {
				other := []int{p.hit(t, "other", "user", "ann"), p.hit(t, "other", "user", "ann"), p.hit(t, "other", "user", "ann")}
				if !slices.Contains(other, http.StatusTooManyRequests) { // a new hour may begin between two
					t.Errorf("rules of another ConfigMap: %v", other)
				}
			}
		})
	}
	if len(names) > 0 {
		t.Errorf("nothing renders %v", names)
	}
}

// TestWrongRulesStopNewPods: the init container of every Deployment that reads
// its rules from a ConfigMap refuses a rule with an error, and names it.
func TestWrongRulesStopNewPods(t *testing.T) {
	wrong := map[string]string{"edge.yaml": "domain: edge\ndescriptors:\n  - key: user\n    rate_limit: {unit: minuet, requests_per_unit: 3}\n"}
	seen := 0
	for _, w := range workloads(t) {
		if slices.Contains([]string{"chart/xds", "chart/bare", "chart/volume", "gateways/ai-gateway"}, w.name) {
			continue // their rules are somebody else's, or there are none
		}
		seen++
		i := slices.IndexFunc(w.pod.InitContainers, func(c container) bool { return c.Name == "check-rules" })
		if i < 0 {
			t.Errorf("%s does not check its rules", w.name)
			continue
		}
		check, disk := w.pod.InitContainers[i], t.TempDir()
		if check.Image != w.c.Image {
			t.Errorf("%s checks with %s and serves with %s", w.name, check.Image, w.c.Image)
		}
		mount(t, w.rendering, w.pod, check, disk, wrong)
		out, err := runToEnd(t, w.rendering, check, disk)
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "edge.yaml:4:") || !strings.Contains(out, "minuet") {
			t.Errorf("%s: %v\n%s", w.name, err, out)
		}
	}
	if seen < 9 {
		t.Errorf("only %d Deployments", seen)
	}
}

// runToEnd runs an init container, with its paths below disk, and returns its
// log.
func runToEnd(t *testing.T, r rendering, c container, disk string) (string, error) {
	t.Helper()
	if err := binaries(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaryDir, filepath.Base(c.Command[0])))
	for _, arg := range c.Command[1:] {
		if filepath.IsAbs(arg) {
			arg = filepath.Join(disk, arg)
		}
		cmd.Args = append(cmd.Args, arg)
	}
	for name, value := range r.environment(t, c) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mount writes the ConfigMaps and Secrets that the container mounts, and more files,
// below disk as the kubelet does: ..data links to a folder with a date for its
// name, and each file links into ..data.
func mount(t *testing.T, r rendering, p pod, c container, disk string, more map[string]string) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("%s is a single file, which the kubelet never updates", m.MountPath)
		}
		for _, v := range p.Volumes {
			if v.Name != m.Name {
				continue
			}
			files := map[string]string{}
			for _, o := range r.all("ConfigMap") {
				if o.Metadata.Name == v.ConfigMap.Name {
					files = maps.Clone(o.Data)
				}
			}
			for _, item := range v.Secret.Items {
				files[item.Path] = "default:any" // a user that needs no password is let in with any
			}
			if v.Secret.SecretName != "" && len(v.Secret.Items) == 0 { // a CA, all of whose keys are mounted
				files["ca.pem"] = "unread"
			}
			if gateway(r) {
				files["config.yaml"] = read(t, "config/quickstart.yaml")
			}
			if strings.HasPrefix(v.ConfigMap.Name, "rules-") { // of another team
				files["rules.yaml"] = "domain: other\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\n"
			}
			if len(files) == 0 {
				t.Errorf("%s: there is no ConfigMap or Secret for %s", r.name, v.Name)
			}
			maps.Copy(files, more)
			dir := filepath.Join(disk, m.MountPath)
			for name, content := range files {
				write(t, filepath.Join(dir, "..2026_11_21", name), content)
				link(t, filepath.Join("..data", name), filepath.Join(dir, name))
			}
			link(t, "..2026_11_21", filepath.Join(dir, "..data"))
		}
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// answer fails the test unless p answers the probe. Without a probe it fails
// unless maybeNone.
func answer(t *testing.T, p program, probe probe, maybeNone bool) {
	t.Helper()
	switch {
	case probe.GRPC != nil:
		conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		resp, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: probe.GRPC.Service})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING || probe.GRPC.Port != 8081 {
			t.Errorf("probe %+v: %v %v", *probe.GRPC, resp, err)
		}
	case probe.HTTPGet != nil:
		if p.get("http://"+p.http+probe.HTTPGet.Path) == "" {
			t.Errorf("probe %+v is not answered", *probe.HTTPGet)
		}
	case !maybeNone:
		t.Error("a probe is missing")
	}
}
