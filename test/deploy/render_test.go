package deploy_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	overlays  = "deploy/k8s/overlays"
	gateways  = "deploy/gateways"
	chart     = "deploy/helm/rls"
	valueSets = "test/deploy/testdata/values"
	// kubernetes is the oldest version that the manifests support.
	kubernetes = "1.30"
)

// rendering is a set of manifests as kubectl receives them.
type rendering struct {
	name    string // such as overlay/redis or chart/redis
	yaml    string
	objects []object
	tests   []object // those that Helm makes for helm test only
}

// object is an object of any kind, with the fields that the tests read.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name                string
		Labels, Annotations map[string]string
	}
	Data map[string]string // ConfigMap
	Spec struct {
		Replicas *int
		// A Service has its labels here; a Deployment, a PodDisruptionBudget and a
		// ServiceMonitor have a map with the key matchLabels.
		Selector       map[string]any
		PodSelector    selector                    `yaml:"podSelector"`
		ClusterIP      string                      `yaml:"clusterIP"`
		ScaleTargetRef struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		Template       struct {
			Metadata struct{ Labels, Annotations map[string]string }
			Spec     pod
		}
		Ports []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Endpoints []struct{ Port string }
		Ingress   []struct {
			From  []map[string]any
			Ports []struct{ Port any }
		}
		Egress []struct {
			To    []map[string]any
			Ports []struct{ Port any }
		}
		Groups any
		// A Certificate of cert-manager.
		SecretName string                  `yaml:"secretName"`
		DNSNames   []string                `yaml:"dnsNames"`
		IssuerRef  map[string]string       `yaml:"issuerRef"`
		Metrics    []struct{ Type string } // HorizontalPodAutoscaler
		pod        `yaml:",inline"`        // of a Pod
	}
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type pod struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		LabelSelector selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	DNSPolicy      string         `yaml:"dnsPolicy"`
	DNSConfig      map[string]any `yaml:"dnsConfig"`
	InitContainers []container    `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			SecretName  string `yaml:"secretName"`
			Optional    bool
			DefaultMode int `yaml:"defaultMode"`
			Items       []struct{ Key, Path string }
		}
		PersistentVolumeClaim struct {
			ClaimName string `yaml:"claimName"`
		} `yaml:"persistentVolumeClaim"`
	}
}

type container struct {
	Name    string
	Image   string
	Command []string
	EnvFrom []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name, Value string
		ValueFrom   struct {
			ResourceFieldRef struct{ Resource, Divisor string } `yaml:"resourceFieldRef"`
			SecretKeyRef     struct {
				Name, Key string
				Optional  bool
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Resources struct{ Requests, Limits map[string]string }
	Ports     []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe    probe `yaml:"startupProbe"`
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
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	GRPC *struct {
		Port    int
		Service string
	} `yaml:"grpc"`
	HTTPGet *struct{ Path, Port string } `yaml:"httpGet"`
	numbers `yaml:",inline"`
}

type numbers struct {
	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

var everything struct {
	once sync.Once
	all  []rendering
}

// rendered returns every overlay, the chart with every set of values, and
// the Deployment for AI Gateway. They are rendered once for all tests, which leave them as
// they are.
func rendered(t *testing.T) []rendering {
	t.Helper()
	everything.once.Do(func() {
		for _, dir := range entries(t, overlays) {
			everything.all = append(everything.all, overlay(t, dir))
		}
		for _, file := range entries(t, valueSets) {
			everything.all = append(everything.all, release(t, strings.TrimSuffix(file, ".yaml")))
		}
		ours := read(t, gateways+"/ai-gateway/ratelimit.yaml")
		everything.all = append(everything.all, rendering{name: "gateways/ai-gateway", yaml: ours, objects: parse(t, ours)})
	})
	return everything.all
}

// workload is a Deployment of our own manifests.
type workload struct {
	rendering
	object
	pod pod
	c   container // ours
	env map[string]string
}

// workloads returns the Deployments of all manifests but those of gateways, and of
// more.
func workloads(t *testing.T, more ...rendering) (all []workload) {
	t.Helper()
	for _, r := range slices.Concat(rendered(t), more) {
		if gateway(r) {
			continue
		}
		for _, d := range r.all("Deployment") {
			c := d.Spec.Template.Spec.ours(t)
			all = append(all, workload{r, d, d.Spec.Template.Spec, c, r.environment(t, c)})
		}
	}
	if len(all) < 10 {
		t.Errorf("only %d Deployments", len(all))
	}
	return all
}

// overlay renders an overlay as `kubectl apply -k` does.
func overlay(t *testing.T, name string) rendering {
	t.Helper()
	out, err := built(filepath.Join(root, overlays, name))
	if err != nil {
		t.Fatal(err)
	}
	return rendering{name: "overlay/" + name, yaml: out, objects: parse(t, out)}
}

// built is the output of kustomize for the kustomization in a folder.
func built(dir string) (string, error) {
	program, err := kustomize()
	if err != nil {
		return "", err
	}
	return run(dir, program, "build", ".")
}

// release renders the chart with a set of values.
func release(t *testing.T, values string) rendering {
	t.Helper()
	return template(t, "chart/"+values, "--values", filepath.Join(valueSets, values+".yaml"))
}

// render renders the chart with the default values and changes to them, each as
// --set takes it.
func render(t *testing.T, set ...string) rendering {
	t.Helper()
	var args []string
	for _, s := range set {
		args = append(args, "--set", s)
	}
	return template(t, strings.Join(set, ","), args...)
}

// template renders the chart as the release test, with more arguments for helm.
func template(t *testing.T, name string, args ...string) rendering {
	t.Helper()
	return named(t, name, "test", args...)
}

// named renders the chart as a release with that name, with more arguments for helm.
func named(t *testing.T, name, release string, args ...string) rendering {
	t.Helper()
	out, err := run(root, tool(t, "helm"), append([]string{"template", release, chart, "--kube-version", kubernetes + ".0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	r := rendering{name: name, yaml: out}
	for _, o := range parse(t, out) {
		if o.Metadata.Annotations["helm.sh/hook"] == "test" {
			r.tests = append(r.tests, o)
		} else {
			r.objects = append(r.objects, o)
		}
	}
	return r
}

func parse(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o.Kind != "" { // else a template that rendered to nothing
			all = append(all, o)
		}
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

// all returns the objects of a kind.
func (r rendering) all(kind string) []object {
	var found []object
	for _, o := range r.objects {
		if o.Kind == kind {
			found = append(found, o)
		}
	}
	return found
}

// one returns the object of a kind. It fails the test unless there is exactly one.
func (r rendering) one(t *testing.T, kind string) object {
	t.Helper()
	found := r.all(kind)
	if len(found) != 1 {
		t.Fatalf("%s has %d of kind %s", r.name, len(found), kind)
	}
	return found[0]
}

// ours returns the container that runs the service.
func (p pod) ours(t *testing.T) container {
	t.Helper()
	for _, c := range p.Containers {
		if strings.Contains(c.Image, "rls") {
			return c
		}
	}
	t.Fatalf("no container has our image: %+v", p.Containers)
	return container{}
}

// environment returns the variables of the container's process, without variables
// whose values only a cluster knows, such as those from Secrets.
func (r rendering) environment(t *testing.T, c container) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		found := false
		for _, o := range r.all("ConfigMap") {
			if o.Metadata.Name == from.ConfigMapRef.Name {
				found = true
				for name, value := range o.Data {
					env[name] = value
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no ConfigMap %s", r.name, from.ConfigMapRef.Name)
		}
	}
	for _, e := range c.Env {
		switch {
		case e.Value != "":
			// The kubelet expands $(NAME) to a variable defined earlier in the list.
			env[e.Name] = os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(e.Value), func(name string) string { return env[name] })
		case e.ValueFrom.ResourceFieldRef.Resource == "limits.memory":
			env[e.Name] = strconv.Itoa(bytesOf(t, c.Resources.Limits["memory"]) / bytesOf(t, e.ValueFrom.ResourceFieldRef.Divisor))
		}
	}
	return env
}
