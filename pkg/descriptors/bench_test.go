package descriptors_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// manyRules is a file of n rules for one key, as operators write them.
func manyRules(n int) yaml.Text {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - key: user\n    value: v0-%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: %d\n", i, i%1000)
	}
	return yaml.Text{Name: "bench.yaml", Content: []byte(b.String())}
}

// manyWildcards is a file of n rules with a wildcard each.
func manyWildcards(n int) yaml.Text {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {key: path, value: \"/v%06d/*/edit\", rate_limit: {unit: minute, requests_per_unit: 5}}\n", i)
	}
	return yaml.Text{Name: "bench.yaml", Content: []byte(b.String())}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			domain := load(b, manyRules(n)).Domain("bench")
			requests := make([][]descriptors.Entry, 10)
			for i := range requests {
				requests[i] = []descriptors.Entry{{Key: "user", Value: fmt.Sprintf("v0-%d", i*n/10)}}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if domain.Match(requests[i%10]) == nil {
					b.Fatal("no rule")
				}
				i++
			}
		})
	}
}

func BenchmarkMatchWildcard(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			domain := load(b, manyWildcards(n)).Domain("bench")
			request := []descriptors.Entry{{Key: "path", Value: fmt.Sprintf("/v%06d/x/edit", n-1)}}
			b.ReportAllocs()
			for b.Loop() {
				if domain.Match(request) == nil {
					b.Fatal("no rule")
				}
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			files := []yaml.Text{manyRules(n)}
			b.SetBytes(int64(len(files[0].Content)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := yaml.Load(files, rules.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendID(b *testing.B) {
	entries := []descriptors.Entry{{Key: "user", Value: "v0-123456"}}
	buf := make([]byte, 0, 128)
	b.ReportAllocs()
	for b.Loop() {
		buf = descriptors.AppendID(buf[:0], "bench", entries, nil)
	}
}

func load(tb testing.TB, files ...yaml.Text) *descriptors.Tree {
	tb.Helper()
	tree, _, err := yaml.Load(files, rules.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

// A rule in force takes about 500 bytes: nothing of the text, parsed, stays in memory.
func TestMemoryOfRules(t *testing.T) {
	const n, most = 20_000, 750
	file := manyRules(n)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // also empties pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	tree := load(t, file)
	if each := int64(heap()-before) / n; each > most {
		t.Errorf("%d bytes for each rule, want at most %d", each, most)
	}
	runtime.KeepAlive(tree)
}
