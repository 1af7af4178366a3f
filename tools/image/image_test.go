//go:build linux

// These tests build a release and its image with scripts/release.sh, compare their
// contents with the documents, and run the image's program as a container engine would.
// test/integration tests what the program does with its settings.
package main_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	repository = "../.."
	version    = "v1.2.3-test"
	revision   = "0123456789abcdef0123456789abcdef01234567"
	epoch      = 1_760_000_000
)

var architectures = []string{"amd64", "arm64"}

// scratch is the folder in which releases are built.
var scratch string

func TestMain(m *testing.M) {
	if root, ok := os.LookupEnv(containerRoot); ok {
		becomeContainer(root)
	}
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "rls-image-"); err != nil {
			fmt.Fprintln(os.Stderr, "image:", err)
			return 1
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		return m.Run()
	}())
}

// built returns the folder of a release, which it builds once for all tests.
var built = sync.OnceValues(func() (string, error) {
	sources := filepath.Join(scratch, "sources")
	if err := copySources(repository, sources); err != nil {
		return "", err
	}
	return build(sources)
})

func dist(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func copySources(from, to string) error {
	for _, name := range []string{"cmd", "pkg", "internal", "scripts", "tools"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build runs the release's script with env added to the environment, and returns the
// folder of the release.
func build(sources string, env ...string) (string, error) {
	cmd := exec.Command(filepath.Join(sources, "scripts", "release.sh"))
	cmd.Env = append(os.Environ(), "DIST=dist", "VERSION="+version, "REVISION="+revision, fmt.Sprint("SOURCE_DATE_EPOCH=", epoch))
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("scripts/release.sh: %w\n%s", err, out)
	}
	return filepath.Join(sources, "dist"), nil
}

// TestReleaseIsReproducible: a build in another folder and time zone, at another time
// and with other defaults of Go, makes the same bytes.
func TestReleaseIsReproducible(t *testing.T) {
	first := dist(t)
	elsewhere := filepath.Join(t.TempDir(), "a", "longer", "path")
	if err := copySources(filepath.Dir(first), elsewhere); err != nil {
		t.Fatal(err)
	}
	second, err := build(elsewhere, "GOAMD64=v3", "GOARM64=v8.2", "GOFLAGS=-tags=netgo", "TZ=Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digests(t, first), digests(t, second)); diff != "" {
		t.Errorf("a second build differs:\n%s", diff)
	}
}

// digests returns the SHA-256 sums of all files, by path.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			sums[name] = digest(read(t, path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sums
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestChecksumsAreOfAllThatIsPublished(t *testing.T) {
	dir := dist(t)
	want := map[string]string{}
	for name, sum := range digests(t, dir) {
		if name != "SHA256SUMS" && !strings.Contains(name, "/") {
			want[name] = sum
		}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got[name] = sum
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got) != 1+2*len(architectures) {
		t.Errorf("published: %v", got)
	}
}

func TestBinariesSayWhatTheyAre(t *testing.T) {
	out, err := exec.Command(filepath.Join(dist(t), "linux-"+runtime.GOARCH, "rls"), "version").CombinedOutput()
	want := fmt.Sprintf("rls %s (%s) %s linux/%s\n", version, revision, runtime.Version(), runtime.GOARCH)
	if err != nil || string(out) != want {
		t.Errorf("got %s, %v, want %s", out, err, want)
	}
}

func TestTarballsHoldTheBinaryAndTheLicense(t *testing.T) {
	for _, arch := range architectures {
		path := filepath.Join(dist(t), "rls-"+version+"-linux-"+arch+".tar.gz")
		out, err := exec.Command("tar", "-C", t.TempDir(), "-xzvf", path).CombinedOutput()
		if err != nil || string(out) != "rls\nLICENSE\n" {
			t.Errorf("%s: %s, %v", arch, out, err)
		}
	}
}

// found returns the images of the archive by architecture. It unpacks them once, since
// that is slow under the race detector.
var found = sync.OnceValues(func() (map[string]v1.Image, error) {
	dist, err := built()
	if err != nil {
		return nil, err
	}
	archive, err := os.Open(filepath.Join(dist, "rls-"+version+".oci.tar"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }()
	dir := filepath.Join(scratch, "layout")
	if err := untar(archive, dir); err != nil {
		return nil, err
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "rls:"+version {
		return nil, fmt.Errorf("the archive holds %+v", manifest.Manifests)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return nil, err
	}
	if err := validate.Index(index); err != nil {
		return nil, err
	}
	if manifest, err = index.IndexManifest(); err != nil {
		return nil, err
	}
	all := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" {
			return nil, fmt.Errorf("an image is for %v", m.Platform)
		}
		if all[m.Platform.Architecture], err = index.Image(m.Digest); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// images returns the images of the archive by architecture.
func images(t *testing.T) map[string]v1.Image {
	t.Helper()
	all, err := found()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unpack writes an image's file system to a new folder.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	if err := untar(files, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func untar(from io.Reader, dir string) error {
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&^0o777 != 0 || h.ModTime.Unix() != epoch {
			return fmt.Errorf("%s belongs to %d:%d, has the mode %o and is of %v", h.Name, h.Uid, h.Gid, h.Mode, h.ModTime)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case tar.TypeReg:
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				break
			}
			var body []byte
			if body, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, body, os.FileMode(h.Mode))
			}
		default:
			err = fmt.Errorf("%s is of the type %c", h.Name, h.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

func TestImages(t *testing.T) {
	all := images(t)
	if len(all) != len(architectures) {
		t.Fatalf("images for %d architectures", len(all))
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			root := unpack(t, all[arch])

			var names []string
			for name := range digests(t, root) {
				names = append(names, name)
			}
			slices.Sort(names)
			if diff := cmp.Diff([]string{
				"bin/ratelimit", "bin/rls", "etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt",
				"usr/share/doc/rls/LICENSE", "usr/share/doc/rls/rls.cdx.json",
			}, names); diff != "" {
				t.Errorf("files: %s", diff)
			}
			if to, err := os.Readlink(filepath.Join(root, "bin/ratelimit")); err != nil || to != "rls" {
				t.Errorf("/bin/ratelimit leads to %q, %v", to, err)
			}

			path := filepath.Join(root, "bin/rls")
			binary, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = binary.Close() }()
			if binary.Machine != machine {
				t.Errorf("the binary is for %v", binary.Machine)
			}
			if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				t.Error("the binary wants a dynamic loader")
			}
			if digest(read(t, path)) != digest(read(t, filepath.Join(dist(t), "linux-"+arch, "rls"))) {
				t.Error("the image and the release have different binaries")
			}

			bill := read(t, filepath.Join(root, "usr/share/doc/rls/rls.cdx.json"))
			if !bytes.Equal(bill, read(t, filepath.Join(dist(t), "rls-"+version+"-linux-"+arch+".cdx.json"))) {
				t.Error("the image and the release have different bills of materials")
			}
			checkBill(t, bill, path)
			checkCertificates(t, read(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")))
		})
	}
}

// checkBill compares a bill of materials with the build information in the binary.
func checkBill(t *testing.T, bill []byte, binary string) {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(bill), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !slices.ContainsFunc(got, func(purl string) bool { return strings.HasPrefix(purl, "pkg:golang/google.golang.org/grpc@v1.") }) {
		t.Error("gRPC is not in it")
	}
	program := bom.Metadata.Component
	if program.Version != version || (*program.Hashes)[0].Value != digest(read(t, binary)) {
		t.Errorf("it is the bill of %+v", program)
	}
	if at, err := time.Parse(time.RFC3339, bom.Metadata.Timestamp); err != nil || at.Unix() != epoch {
		t.Errorf("it is of %s", bom.Metadata.Timestamp)
	}
}

func checkCertificates(t *testing.T, text []byte) {
	t.Helper()
	n := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA {
			t.Fatalf("%v: %v", block.Type, err)
		}
		n++
	}
	if n < 100 {
		t.Errorf("%d certificates", n)
	}
}

func TestConfiguration(t *testing.T) {
	for arch, img := range images(t) {
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.OS != "linux" || c.Architecture != arch || c.Created.Unix() != epoch {
			t.Errorf("%s: for %s/%s, of %v", arch, c.OS, c.Architecture, c.Created)
		}
		want := v1.Config{
			User: "65534:65534", WorkingDir: "/", Env: []string{"PATH=/bin"}, Entrypoint: []string{"/bin/ratelimit"},
			ExposedPorts: map[string]struct{}{"6070/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9090/tcp": {}},
			Healthcheck: &v1.HealthConfig{
				Test: []string{"CMD", "/bin/rls", "healthcheck"}, Interval: 10 * time.Second, Timeout: 3 * time.Second, StartPeriod: 10 * time.Second,
			},
			Labels: map[string]string{
				"org.opencontainers.image.title": "rls", "org.opencontainers.image.description": "A rate-limit service for Envoy",
				"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.version": version, "org.opencontainers.image.revision": revision,
			},
		}
		if diff := cmp.Diff(want, c.Config); diff != "" {
			t.Errorf("%s: %s", arch, diff)
		}
		dockerfileAgrees(t, c.Config)
	}
}

// dockerfileAgrees compares the configuration with the last stage of Dockerfile.
func dockerfileAgrees(t *testing.T, c v1.Config) {
	t.Helper()
	file := parseDockerfile(t)
	last := file.stages[len(file.stages)-1]
	var entrypoint []string
	if err := json.Unmarshal([]byte(last.one(t, "ENTRYPOINT")), &entrypoint); err != nil || !slices.Equal(entrypoint, c.Entrypoint) {
		t.Errorf("Dockerfile's entrypoint is %q, %v", entrypoint, err)
	}
	check := c.Healthcheck
	if want := fmt.Sprintf("--interval=%v --timeout=%v --start-period=%v CMD [%q, %q]", check.Interval, check.Timeout, check.StartPeriod, check.Test[1], check.Test[2]); last.one(t, "HEALTHCHECK") != want {
		t.Errorf("Dockerfile's check is %s, want %s", last.one(t, "HEALTHCHECK"), want)
	}
	for word, want := range map[string]string{"USER": c.User, "WORKDIR": c.WorkingDir, "ENV": c.Env[0]} {
		if got := last.one(t, word); got != want {
			t.Errorf("Dockerfile's %s is %s, want %s", word, got, want)
		}
	}
	ports := map[string]struct{}{}
	for port := range strings.FieldsSeq(last.one(t, "EXPOSE")) {
		ports[port+"/tcp"] = struct{}{}
	}
	if diff := cmp.Diff(c.ExposedPorts, ports); diff != "" {
		t.Errorf("Dockerfile's ports: %s", diff)
	}
	labels := last.one(t, "LABEL")
	for key, value := range c.Labels {
		value = strings.NewReplacer(version, "${VERSION}", revision, "${REVISION}").Replace(value)
		if !strings.Contains(labels, fmt.Sprintf("%s=%q", key, value)) {
			t.Errorf("Dockerfile does not say %s=%q", key, value)
		}
	}
}
