// The program reads manifests of the Gateway API and of Envoy Gateway from the standard input, and
// writes the rules that Envoy Gateway's own translator makes of them: the resources that it sends over
// xDS, in JSON. scripts/gateway.sh runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/internal/gatewayapi"
	"github.com/envoyproxy/gateway/internal/gatewayapi/resource"
	"github.com/envoyproxy/gateway/internal/logging"
	"github.com/envoyproxy/gateway/internal/xds/translator"
	"google.golang.org/protobuf/encoding/protojson"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func main() {
	if err := write(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(in io.Reader, out io.Writer) error {
	manifests, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	// Services and the like that the manifests name are made up.
	resources, err := resource.LoadResourcesFromYAMLBytes(manifests, true, nil)
	if err != nil {
		return err
	}
	t := &gatewayapi.Translator{
		GatewayControllerName:  string(resources.GatewayClass.Spec.ControllerName),
		GatewayClassName:       gwapiv1.ObjectName(resources.GatewayClass.Name),
		GlobalRateLimitEnabled: true,
		Logger:                 logging.DefaultLogger(io.Discard, egv1a1.LogLevelInfo),
	}
	translated, _ := t.Translate(context.Background(), resources)
	var all []json.RawMessage
	for _, gateway := range slices.Sorted(maps.Keys(translated.XdsIR)) {
		for _, config := range translator.BuildRateLimitServiceConfig(translated.XdsIR[gateway].HTTP) {
			text, err := protojson.Marshal(config)
			if err != nil {
				return err
			}
			all = append(all, text)
		}
	}
	slices.SortFunc(all, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
