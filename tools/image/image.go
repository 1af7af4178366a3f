package main

import (
	"fmt"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the user and group nobody, which gateways' manifests set.
const user = "65534:65534"

// /etc/passwd and /etc/group, which name that id.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	group  = "root:x:0:\nnobody:x:65534:\n"
)

// image returns the image for one architecture.
func (r *release) image(arch string, binary, bill []byte) (v1.Image, error) {
	license, err := os.ReadFile(r.license)
	if err != nil {
		return nil, err
	}
	layers := []struct {
		story string
		files []file
	}{
		{"certificates and accounts", []file{
			{path: "etc/group", body: []byte(group)},
			{path: "etc/passwd", body: []byte(passwd)},
			{path: "etc/ssl/certs/ca-certificates.crt", body: certificates()},
		}},
		{"the program", []file{
			// Under this name it replaces envoyproxy/ratelimit.
			{path: "bin/ratelimit", link: "rls"},
			{path: "bin/rls", body: binary, executable: true},
		}},
		{"license and bill of materials", []file{
			{path: "usr/share/doc/rls/LICENSE", body: license},
			{path: "usr/share/doc/rls/rls.cdx.json", body: bill},
		}},
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.ConfigFile(img, r.config(arch)); err != nil {
		return nil, err
	}
	for _, l := range layers {
		layer, err := r.layer(l.files)
		if err != nil {
			return nil, fmt.Errorf("layer with %s: %w", l.story, err)
		}
		if img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "make image", Comment: l.story},
		}); err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(img, r.labels()).(v1.Image), nil
}

// config returns the configuration of the image. It equals that of Dockerfile, as
// image_test.go checks.
func (r *release) config(arch string) *v1.ConfigFile {
	return &v1.ConfigFile{
		OS:           "linux",
		Architecture: arch,
		Created:      v1.Time{Time: r.created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user,
			WorkingDir: "/",
			Env:        []string{"PATH=/bin"},
			// The program's defaults depend on its name. A pod without a command
			// expects the defaults of envoyproxy/ratelimit.
			Entrypoint: []string{"/bin/ratelimit"},
			Healthcheck: &v1.HealthConfig{
				Test: []string{"CMD", "/bin/rls", "healthcheck"}, Interval: 10 * time.Second, Timeout: 3 * time.Second, StartPeriod: 10 * time.Second,
			},
			ExposedPorts: map[string]struct{}{"6070/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9090/tcp": {}},
			Labels:       r.labels(),
		},
	}
}

func (r *release) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "rls",
		"org.opencontainers.image.description": "A rate-limit service for Envoy",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.version,
	}
	if r.revision != "" {
		labels["org.opencontainers.image.revision"] = r.revision
	}
	return labels
}
