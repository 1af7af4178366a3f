package metrics_test

import (
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/top"
)

func TestLimited(t *testing.T) {
	rows := func() []top.Row {
		return []top.Row{
			{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "plan", Value: "free"}, {Key: "user", Value: "ann"}}, Denied: 3},
			{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: "\xff"}}, Denied: 2, Remaining: 4},
		}
	}
	for hashed, want := range map[bool][]string{
		false: {
			`rls_top_denied{key="plan=free,user=ann",rule="shop.user"} 3`,
			`rls_top_denied{key="user=�",rule="shop.user"} 2`,
			`rls_top_remaining{key="user=�",rule="shop.user"} 4`,
		},
		true: {`rls_top_denied{key="HASH",rule="shop.user"} 3`},
	} {
		m := open(t, metrics.Options{})
		m.Limited(rows, hashed)
		lines := scrape(t, m)
		for _, line := range want {
			line = strings.ReplaceAll(strings.ReplaceAll(line, `\uFFFD`, "\uFFFD"), "HASH", hashOfAnn)
			if !lines[line] {
				t.Errorf("hashed %v: no %s", hashed, line)
			}
		}
	}
}

// hashOfAnn is the start of: printf 'shop\0plan=free,user=ann' | sha256sum
const hashOfAnn = "3c0392aa7936bdc2"
