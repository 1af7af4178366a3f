package commands

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin/status"
)

// The domain is taken from the rules in force, also if they have many pages.
func TestFillDomain(t *testing.T) {
	for _, test := range []struct {
		first, second int // rules of the domains shop and tree
		given         string
		want, problem string
	}{
		{1, 0, "", "shop", ""},
		{150, 0, "", "shop", ""},
		{0, 0, "", "", "name a --domain: the rules have none yet"},
		{1, 1, "", "", "name a --domain: the rules have shop, tree"},
		{150, 1, "", "", "name a --domain: the rules have shop, tree"},
		{1, 1, "given", "given", ""},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.FormValue("n"))
			offset, _ := strconv.Atoi(r.FormValue("offset"))
			all := test.first + test.second
			page := status.Listing{Total: all}
			for i := offset; i < min(all, offset+n); i++ {
				rule := status.ListingRule{Domain: "shop"}
				if i >= test.first {
					rule.Domain = "tree"
				}
				page.Rules = append(page.Rules, rule)
			}
			_ = json.NewEncoder(w).Encode(page)
		}))
		domain := test.given
		err := (&Access{Timeout: time.Minute}).fillDomain(t.Context(), strings.TrimPrefix(api.URL, "http://"), &domain)
		api.Close()
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if domain != test.want || problem != test.problem || (err != nil) != (cli.ExitCode(err) == cli.ExitUsage) {
			t.Errorf("%+v: got %q, %v", test, domain, err)
		}
	}
}
