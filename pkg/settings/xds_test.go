package settings_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/settings"
)

func TestPairsForTheManagementServer(t *testing.T) {
	t.Setenv("CONFIG_TYPE", "grpc_xds_sotw")
	t.Setenv("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a, version=1=2,empty=,")
	t.Setenv("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "Authorization:Bearer x:y,x-tenant: shop")
	s, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "version": "1=2", "empty": ""}, s.XDS.Metadata()); diff != "" {
		t.Error(diff)
	}
	headers, _ := settings.Headers(s.XDS.ClientAdditionalHeaders)
	if diff := cmp.Diff(map[string]string{"Authorization": "Bearer x:y", "x-tenant": "shop"}, headers); diff != "" {
		t.Error(diff)
	}
}

// Errors about headers do not show their values.
func TestWrongHeadersForTheManagementServer(t *testing.T) {
	for given, shown := range map[string]string{
		"authorization=Bearer s3cret":                `"***"`,
		"authorization=Bearer s3cret:s3cret":         `"***"`,
		"x-tenant:shop, s3cret,grpc-timeout: s3cret": `"x-tenant:***,***,grpc-timeout:***"`,
		":s3cret,": `"***"`,
	} {
		_, err := parse(t, "--config-type=GRPC_XDS_SOTW", "--config-grpc-xds-client-additional-headers="+given)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), " is "+shown+": want key:value") {
			t.Errorf("%s: %v, want %s", given, err, shown)
		}
	}
}

func TestWrongSettingsOfTheManagementServer(t *testing.T) {
	set := map[string]string{
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "grpc-timeout:secret",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS":            "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":           "cert.pem",
		"CONFIG_GRPC_XDS_NODE_METADATA":             "zone",
		"CONFIG_GRPC_XDS_SERVER_URL":                "",
	}
	want := []string{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "CONFIG_GRPC_XDS_NODE_METADATA", "CONFIG_GRPC_XDS_SERVER_URL"}
	for name, value := range set {
		t.Setenv(name, value)
	}
	if _, err := parse(t); err != nil {
		t.Errorf("nobody is asked, and yet: %v", err)
	}
	for _, kind := range []string{"GRPC_XDS_SOTW", "GRPC_XDS_DELTA"} {
		_, err := parse(t, "--config-type="+kind)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", kind, err)
		}
		var got []string
		for _, e := range problems(t, err) {
			got = append(got, e.Setting)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}
