package metrics

import (
	"crypto/sha256"
	"encoding/hex"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// Limited adds the metrics of the keys that are denied most. rows returns those keys;
// hashed puts a hash in place of each. It must be called before metrics are sent.
func (m *Metrics) Limited(rows func() []top.Row, hashed bool) {
	each := func(do func(row *top.Row, labels ...string)) {
		seen := map[[2]string]bool{} // keys that were cut may be equal
		for _, row := range rows() {
			labels := [2]string{row.Rule, keyLabel(&row, hashed)}
			if !seen[labels] {
				do(&row, labels[:]...)
			}
			seen[labels] = true
		}
	}
	m.gauge("rls_top_denied", "Requests of the last minute that were denied, for the keys that were denied most.", func(is tell) {
		each(func(row *top.Row, labels ...string) { is(float64(row.Denied), labels...) })
	}, "rule", "key")
	m.gauge("rls_top_remaining", "Hits that were left after the last request that was looked at, for the same keys.", func(is tell) {
		each(func(row *top.Row, labels ...string) {
			if row.Remaining != nil {
				is(float64(*row.Remaining), labels...)
			}
		})
	}, "rule", "key")
}

// keyLabel is the label of a row: its entries as KEY=VALUE,KEY=VALUE, or the first 16
// hexadecimal digits of their SHA-256.
func keyLabel(row *top.Row, hashed bool) string {
	pairs := descriptors.Pairs(row.Entries)
	if !hashed {
		return pairs
	}
	sum := sha256.Sum256([]byte(row.Domain + "\x00" + pairs))
	return hex.EncodeToString(sum[:8])
}
