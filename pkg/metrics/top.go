package metrics

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// limited reads the keys that are denied most when metrics are collected.
type limited struct {
	rows              func() []top.Row
	hashed            bool
	denied, remaining *prometheus.Desc
}

// Limited adds the metrics of the keys that are denied most. rows returns those keys;
// hashed puts a hash in place of each. It must be called before metrics are served,
// and once at most.
func (m *Metrics) Limited(rows func() []top.Row, hashed bool) {
	labels := []string{"rule", "key"}
	m.add.MustRegister(&limited{
		rows: rows, hashed: hashed,
		denied: prometheus.NewDesc("rls_top_denied",
			"Requests of the last minute that were denied, for the keys that were denied most.", labels, nil),
		remaining: prometheus.NewDesc("rls_top_remaining",
			"Hits that were left after the last request that was looked at, for the same keys.", labels, nil),
	})
}

func (l *limited) Describe(to chan<- *prometheus.Desc) {
	to <- l.denied
	to <- l.remaining
}

func (l *limited) Collect(to chan<- prometheus.Metric) {
	seen := map[[2]string]bool{} // keys that were cut may be equal
	for _, row := range l.rows() {
		labels := [2]string{utf8Only(row.Rule), l.key(&row)}
		if seen[labels] {
			continue
		}
		seen[labels] = true
		to <- prometheus.MustNewConstMetric(l.denied, prometheus.GaugeValue, float64(row.Denied), labels[:]...)
		if row.Remaining < math.MaxInt64 {
			to <- prometheus.MustNewConstMetric(l.remaining, prometheus.GaugeValue, float64(row.Remaining), labels[:]...)
		}
	}
}

// key is the label of a row: its entries as KEY=VALUE,KEY=VALUE, or the first 16
// hexadecimal digits of their SHA-256.
func (l *limited) key(row *top.Row) string {
	pairs := descriptors.Pairs(row.Entries)
	if !l.hashed {
		return utf8Only(pairs)
	}
	sum := sha256.Sum256([]byte(row.Domain + "\x00" + pairs))
	return hex.EncodeToString(sum[:8])
}

// utf8Only is s as a label, which has to be UTF-8.
func utf8Only(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
