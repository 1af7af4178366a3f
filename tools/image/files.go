package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// file is one file of a layer. It belongs to root, and its mode forbids writing.
type file struct {
	path       string // without a leading slash
	body       []byte
	executable bool
	link       string // target of a symbolic link; "" for a regular file
}

// layer returns a layer with the files in their order, each after its folders.
func (r *release) layer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for _, f := range files {
		for i := range f.path {
			if folder := f.path[:i+1]; f.path[i] == '/' && !made[folder] {
				made[folder] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755, ModTime: r.created}); err != nil {
					return nil, err
				}
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.body)), Mode: 0o444, ModTime: r.created}
		switch {
		case f.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		case f.executable:
			header.Mode = 0o555
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// certificates returns Mozilla's root certificates in PEM. It leaves out the
// certificates that Mozilla trusts with a constraint, because a PEM file cannot express one.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a Buffer does not fail
		}
	}
	return b.Bytes()
}

// archive writes the index as an OCI image layout in a tar file.
func (r *release) archive(index v1.ImageIndex, name string) error {
	dir, err := os.MkdirTemp(r.dist, "oci-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := written.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "rls:" + r.version,
	})); err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	var b bytes.Buffer
	if err := tarFolder(&b, dir, r.created); err != nil {
		return fmt.Errorf("archive image layout: %w", err)
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// tarFolder archives a folder's files in the order of their names, all with the same
// time and without an owner.
func tarFolder(to io.Writer, dir string, at time.Time) error {
	w := tar.NewWriter(to)
	return errors.Join(fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644, ModTime: at}); err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	}), w.Close())
}
