package docs_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/testenv"
)

const gatewayFiles = "deploy/gateways/"

// gatewayDocs are the pages that put the service behind a gateway.
var gatewayDocs = []string{"docs/envoy.md", "docs/envoy-gateway.md", "docs/istio.md", "docs/contour.md"}

// A mapping of YAML.
type mapping = map[string]any

// gateway is what a page and its files make of the service and of an Envoy.
type gateway struct {
	rules   string
	http    mapping // fields of the HttpConnectionManager
	cluster mapping // that of the service; nil for that of docs/envoy.md
}

// TestGateways starts the service as docs/envoy.md says, with the rules of all these pages, and for
// each page an Envoy with what it and its files say. The commands that verify it print what the
// page shows.
func TestGateways(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gateways := map[string]*gateway{}
	for _, doc := range gatewayDocs {
		gateways[doc] = gatewayOf(t, doc)
		file := filepath.Join(dir, "rules", filepath.Base(doc)+".yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(gateways[doc].rules), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := func() string { return fmt.Sprint(testenv.FreePort(t)) }
	grpc, rls := port(), program{http: "http://127.0.0.1:" + port()}
	s := &shell{
		env: []string{"PATH=" + os.Getenv("PATH"), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
			"PORT=" + portOf(rls.http), "GRPC_PORT=" + grpc, "DEBUG_PORT=" + port()},
		ports: strings.NewReplacer("RUNTIME_ROOT=.", "RUNTIME_ROOT="+dir, "bin/rls", path),
	}
	s.start(t, block(t, gatewayDocs[0], "Apply", "sh"), func(string) bool { return rls.status("/healthcheck", "") == http.StatusOK })
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	for _, doc := range gatewayDocs {
		t.Run(doc, func(t *testing.T) {
			g := gateways[doc]
			if g.cluster == nil {
				g.cluster = gateways[gatewayDocs[0]].cluster
			}
			envoy := testenv.Envoy(t, strings.NewReplacer(
				"port_value: 8000", "port_value: 0",
				"port_value: 8090", "port_value: "+portOf(upstream.URL),
				"port_value: 8081", "port_value: "+grpc,
			).Replace(g.envoy(t)))
			url := "http://" + envoy.Listener("front")
			command := strings.ReplaceAll(block(t, doc, "Verify", "sh"), "localhost:8000", url)
			inOneMinute(t) // sliding windows are exact while no minute ends
			if got, shown := s.run(t, "GATEWAY="+url+"\n"+command), block(t, doc, "Verify", "text"); got != shown {
				t.Errorf("%s prints\n%s\nand the page shows\n%s", command, got, shown)
			}
		})
	}
}

// block is the first block in a section of a document.
func block(t *testing.T, doc, heading, lang string) string {
	t.Helper()
	for _, p := range parts(t, doc) {
		if p.heading == heading && p.lang == lang {
			return p.text
		}
	}
	t.Fatalf("%s: the section %s has no block of %s", doc, heading, lang)
	return ""
}

func portOf(url string) string { return url[strings.LastIndex(url, ":")+1:] }

// gatewayOf reads the YAML of a page, or of the files of its gateway.
func gatewayOf(t *testing.T, doc string) *gateway {
	t.Helper()
	g := &gateway{http: mapping{}}
	host := mapping{"name": "all", "domains": []any{"*"}, "routes": []any{route("/", nil)}}
	g.http["route_config"] = mapping{"virtual_hosts": []any{host}}
	switch filepath.Base(doc) {
	case "istio.md":
		g.rules = readDoc(t, gatewayFiles+"istio/rules.yaml")
		istio(t, g, host)
	case "contour.md":
		g.rules = readDoc(t, gatewayFiles+"contour/rules.yaml")
		contour(t, g, host, block(t, doc, "Apply", "yaml"))
	default:
		for _, p := range parts(t, doc) {
			if p.lang != "yaml" {
				continue
			}
			fields := parseYAML(t, p.text)
			switch {
			case fields["domain"] != nil:
				g.rules = p.text
				g.http["http_filters"] = []any{filter(fields["domain"])}
			case fields["rate_limits"] != nil:
				host["rate_limits"] = fields["rate_limits"]
			case fields["http_filters"] != nil:
				g.http["http_filters"] = fields["http_filters"]
			case fields["clusters"] != nil:
				g.cluster = fields["clusters"].([]any)[0].(mapping)
			default:
				t.Fatalf("%s:%d: nothing uses this block", doc, p.line)
			}
		}
	}
	return g
}

func parseYAML(t *testing.T, text string) (value mapping) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return value
}

// filter is the rate-limit filter that gateways make.
func filter(domain any) mapping {
	return mapping{"name": "envoy.filters.http.ratelimit", "typed_config": mapping{
		"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
		"domain": domain, "timeout": "1s",
		"rate_limit_service": mapping{"transport_api_version": "V3", "grpc_service": mapping{"envoy_grpc": mapping{"cluster_name": "ratelimit"}}},
	}}
}

func route(prefix string, limits []any) mapping {
	return mapping{"match": mapping{"prefix": prefix}, "route": mapping{"cluster": "upstream", "rate_limits": limits}}
}

// istio does as the patches of the EnvoyFilter say. Istio names clusters in its own way.
func istio(t *testing.T, g *gateway, host mapping) {
	t.Helper()
	text := regexp.MustCompile(`cluster_name: outbound[^}]*`).ReplaceAllString(readDoc(t, gatewayFiles+"istio/envoyfilter.yaml"), "cluster_name: ratelimit")
	for _, patch := range parseYAML(t, text)["spec"].(mapping)["configPatches"].([]any) {
		patch := patch.(mapping)
		value := patch["patch"].(mapping)["value"].(mapping)
		switch patch["applyTo"] {
		case "HTTP_FILTER":
			g.http["http_filters"] = []any{value}
		case "VIRTUAL_HOST":
			host["rate_limits"] = value["rate_limits"]
		default:
			t.Fatalf("the test does not know how to apply to %v", patch["applyTo"])
		}
	}
}

// contour makes routes of the HTTPProxy as Contour does, and the filter of its configuration, which the
// page and the file of the ExtensionService have alike.
func contour(t *testing.T, g *gateway, host mapping, configuration string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(configuration))
	for lines.Scan() {
		if !strings.Contains(readDoc(t, gatewayFiles+"contour/extensionservice.yaml"), "\n#   "+lines.Text()) {
			t.Errorf("extensionservice.yaml does not have %q", lines.Text())
		}
	}
	g.http["http_filters"] = []any{filter(parseYAML(t, configuration)["rateLimitService"].(mapping)["domain"])}
	limits := func(of mapping) (all []any) {
		policy, _ := of["rateLimitPolicy"].(mapping)
		if policy == nil {
			return nil
		}
		for _, d := range policy["global"].(mapping)["descriptors"].([]any) {
			var actions []any
			for _, entry := range d.(mapping)["entries"].([]any) {
				for kind, fields := range entry.(mapping) {
					fields := fields.(mapping)
					actions = append(actions, map[string]mapping{
						"remoteAddress": {"remote_address": mapping{}},
						"genericKey":    {"generic_key": mapping{"descriptor_key": fields["key"], "descriptor_value": fields["value"]}},
						"requestHeader": {"request_headers": mapping{"header_name": fields["headerName"], "descriptor_key": fields["descriptorKey"]}},
					}[kind])
				}
			}
			all = append(all, mapping{"actions": actions})
		}
		return all
	}
	spec := parseYAML(t, readDoc(t, gatewayFiles+"contour/httpproxy.yaml"))["spec"].(mapping)
	host["rate_limits"] = limits(spec["virtualhost"].(mapping))
	var routes []any
	for _, r := range spec["routes"].([]any) {
		r, prefix := r.(mapping), "/"
		if conditions, _ := r["conditions"].([]any); conditions != nil {
			prefix = conditions[0].(mapping)["prefix"].(string)
		}
		routes = append(routes, route(prefix, limits(r)))
	}
	host["routes"] = routes
}

// envoy is the configuration of a recipe's Envoy with the filter, the routes and the cluster of the gateway.
func (g *gateway) envoy(t *testing.T) string {
	t.Helper()
	config := parseYAML(t, readDoc(t, "deploy/recipes/routes/envoy.yaml"))
	resources := config["static_resources"].(mapping)
	chain := resources["listeners"].([]any)[0].(mapping)["filter_chains"].([]any)[0].(mapping)
	manager := chain["filters"].([]any)[0].(mapping)["typed_config"].(mapping)
	filters := manager["http_filters"].([]any)
	manager["http_filters"] = append(g.http["http_filters"].([]any), filters[len(filters)-1])
	manager["route_config"] = g.http["route_config"]
	resources["clusters"] = []any{resources["clusters"].([]any)[0], g.cluster}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGatewayDocsNameSettings: docs/settings.md has every variable that the pages to production name.
func TestGatewayDocsNameSettings(t *testing.T) {
	for path, least := range map[string]int{"docs/envoy-gateway.md": 4, "docs/kubernetes.md": 8} {
		namesSettings(t, path, least)
	}
}

// TestGatewayCommands: a file says at its top itself the command that a page applies it with.
func TestGatewayCommands(t *testing.T) {
	applied := 0
	for _, doc := range gatewayDocs[1:] {
		lines := bufio.NewScanner(strings.NewReader(block(t, doc, "Apply", "text")))
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "helm install rls ") { // test/deploy renders it
				continue
			}
			applied++
			path := regexp.MustCompile(`deploy/gateways/\S+`).FindString(lines.Text())
			if path == "" {
				t.Errorf("%s: %q applies no file", doc, lines.Text())
				continue
			}
			says := regexp.MustCompile(`\s*\\?\n#\s*`).ReplaceAllString(readDoc(t, path), " ")
			if command := strings.Replace(lines.Text(), path, filepath.Base(path), 1); !strings.Contains(says, command) {
				t.Errorf("%s: %s does not say %q", doc, path, command)
			}
		}
	}
	if applied != 6 {
		t.Errorf("%d commands", applied)
	}
}
