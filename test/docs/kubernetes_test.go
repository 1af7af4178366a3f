package docs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// manifest is as much of any of the objects as the tests look at.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // ConfigMap
	Spec     struct {
		Replicas int
		Selector any
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
		Ports []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}
}

type podSpec struct {
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
	} `yaml:"securityContext"`
	Containers []struct {
		Command []string
		Env     []struct{ Name, Value string }
		Ports   []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		ReadinessProbe  probe `yaml:"readinessProbe"`
		LivenessProbe   probe `yaml:"livenessProbe"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool                   `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool                    `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string } `yaml:"capabilities"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			SubPath   string `yaml:"subPath"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type probe struct {
	GRPC *struct {
		Port    int
		Service string
	} `yaml:"grpc"`
}

// kustomized is deploy/k8s as `kubectl apply -k` would send it, by kind.
func kustomized(t *testing.T) map[string]manifest {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(tool(t, "kustomize"), "build", filepath.Join(root, "deploy", "k8s"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kustomize build: %v\n%s", err, stderr.String())
	}
	objects := map[string]manifest{}
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects[m.Kind] = m
	}
}

// TestKubernetesServes runs the container's command with its environment and
// the ConfigMap where the pod would have it, and probes as the kubelet does.
func TestKubernetesServes(t *testing.T) {
	objects := kustomized(t)
	pod := objects["Deployment"].Spec.Template.Spec
	c := pod.Containers[0]
	if strings.Join(c.Command, " ") != "/rls serve" {
		t.Errorf("the command is %q", c.Command)
	}

	mount := c.VolumeMounts[0]
	if pod.Volumes[0].Name != mount.Name || pod.Volumes[0].ConfigMap.Name != objects["ConfigMap"].Metadata.Name || mount.SubPath != "" {
		t.Errorf("volume %+v, mount %+v, ConfigMap %s", pod.Volumes[0], mount, objects["ConfigMap"].Metadata.Name)
	}
	disk := t.TempDir()
	if err := os.MkdirAll(filepath.Join(disk, mount.MountPath), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range objects["ConfigMap"].Data {
		if err := os.WriteFile(filepath.Join(disk, mount.MountPath, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var env []string
	for _, e := range c.Env {
		switch e.Name {
		case "RUNTIME_ROOT":
			e.Value = filepath.Join(disk, e.Value)
		case "GRPC_PORT", "PORT":
			t.Errorf("the test is about the default ports, not %s=%s", e.Name, e.Value)
		case "USE_PROMETHEUS":
			env = append(env, "PROMETHEUS_ADDR=127.0.0.1:0")
		}
		env = append(env, e.Name+"="+e.Value)
	}
	if !strings.Contains(strings.Join(env, "\n"), "\nGOMEMLIMIT=") {
		t.Error("GOMEMLIMIT is not set")
	}
	rls := serve(t, env)

	conn, err := grpc.NewClient(rls.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, p := range []probe{c.ReadinessProbe, c.LivenessProbe} {
		if p.GRPC == nil || p.GRPC.Port != 8081 {
			t.Fatalf("probe %+v is not one of gRPC on 8081", p)
		}
		resp, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: p.GRPC.Service})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("probe %+v: %v %v", *p.GRPC, resp, err)
		}
	}
	inOneMinute(t)
	for n := range 4 {
		want := http.StatusOK
		if n == 3 {
			want = http.StatusTooManyRequests
		}
		if got := rls.hit("quickstart", "generic_key", "hello"); got != want {
			t.Errorf("hit %d: %d, want %d", n+1, got, want)
		}
	}
}

func TestKubernetesIsModest(t *testing.T) {
	objects := kustomized(t)
	deployment := objects["Deployment"]
	pod := deployment.Spec.Template.Spec
	if deployment.Spec.Replicas != 1 || !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.RunAsUser != 65534 {
		t.Errorf("%d replicas, %+v", deployment.Spec.Replicas, pod.SecurityContext)
	}
	s := pod.Containers[0].SecurityContext
	if !s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || strings.Join(s.Capabilities.Drop, "") != "ALL" {
		t.Errorf("%+v", s)
	}
}

// TestKubernetesServiceLeadsToThePod: its selector and ports are the pod's.
func TestKubernetesServiceLeadsToThePod(t *testing.T) {
	objects := kustomized(t)
	template, service := objects["Deployment"].Spec.Template, objects["Service"].Spec
	selector, _ := service.Selector.(map[string]any)
	if len(selector) == 0 {
		t.Error("the Service selects nothing")
	}
	for label, value := range selector {
		if template.Metadata.Labels[label] != value {
			t.Errorf("the pod has %s: %s, the Service selects %v", label, template.Metadata.Labels[label], value)
		}
	}
	ports := map[string]int{}
	for _, p := range template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Ports {
		if ports[p.TargetPort] != p.Port {
			t.Errorf("port %d leads to %q, which is %d", p.Port, p.TargetPort, ports[p.TargetPort])
		}
	}
}

// TestKubernetesRulesAreTheQuickStarts: kustomize reads no files above its
// folder, so deploy/k8s has a copy.
func TestKubernetesRulesAreTheQuickStarts(t *testing.T) {
	_, mine, _ := strings.Cut(readDoc(t, "deploy/k8s/rules.yaml"), "\ndomain:")
	_, theirs, _ := strings.Cut(readDoc(t, "config/quickstart.yaml"), "\ndomain:")
	if mine != theirs {
		t.Errorf("deploy/k8s/rules.yaml has\n%s\nconfig/quickstart.yaml has\n%s", mine, theirs)
	}
}
