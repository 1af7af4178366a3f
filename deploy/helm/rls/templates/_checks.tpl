{{/* Refuses values that contradict each other, and settings that the chart
     decides or that do not exist. A JSON schema cannot say why. */}}
{{- define "rls.check" -}}
{{- $v := .Values -}}
{{- $settings := default dict $v.settings -}}
{{- if eq $v.backend.type "memory" -}}
{{- if or $v.autoscaling.enabled (gt (int $v.replicas) 1) -}}
{{- fail "replicas, autoscaling.enabled: with backend.type memory each replica counts for itself: want replicas 1, or another backend.type" -}}
{{- end -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas: want at most autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not $v.metrics.enabled -}}
{{- range $what := list "serviceMonitor" "prometheusRule" -}}
{{- if (index $v.metrics $what).enabled -}}
{{- fail (printf "metrics.%s.enabled: want metrics.enabled, too" $what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.rules $v.existingRulesConfigMap -}}
{{- fail "rules: existingRulesConfigMap is set: want one of the two" -}}
{{- end -}}
{{- if and (not (include "rls.readsFiles" .)) (or $v.rules $v.existingRulesConfigMap) -}}
{{- fail (printf "rules, existingRulesConfigMap: with settings.CONFIG_TYPE %s a management server sends the rules: want neither" $settings.CONFIG_TYPE) -}}
{{- end -}}
{{- if and (eq $v.backend.type "memcache") (eq (empty $v.backend.memcache.hosts) (not $settings.MEMCACHE_SRV)) -}}
{{- fail "backend.memcache.hosts: want the servers here, or \"\" and settings.MEMCACHE_SRV" -}}
{{- end -}}
{{- include "rls.check.redis" . -}}
{{- range $label, $_ := fromYaml (include "rls.selector" .) -}}
{{- if hasKey (default dict $v.podLabels) $label -}}
{{- fail (printf "podLabels.%s: selectors find the pods by this label: want another name, or nameOverride" $label) -}}
{{- end -}}
{{- end -}}
{{- include "rls.check.settings" . -}}
{{- end -}}

{{- define "rls.check.redis" -}}
{{- $redis := .Values.backend.redis -}}
{{- if eq .Values.backend.type "redis" -}}
{{- if and (eq $redis.type "SENTINEL") (not (contains "," $redis.url)) -}}
{{- fail "backend.redis.url: with backend.redis.type SENTINEL want the name of the master and the sentinels: primary,sentinel-0:26379,sentinel-1:26379" -}}
{{- end -}}
{{- if and $redis.sentinelAuthSecret.name (ne $redis.type "SENTINEL") -}}
{{- fail (printf "backend.redis.sentinelAuthSecret: there are no sentinels with backend.redis.type %s: want SENTINEL, or no such Secret" $redis.type) -}}
{{- end -}}
{{- if and $redis.ca.secret $redis.ca.configMap -}}
{{- fail "backend.redis.ca: want secret or configMap, not both" -}}
{{- end -}}
{{- if and (or $redis.ca.secret $redis.ca.configMap) (not $redis.tls) -}}
{{- fail "backend.redis.ca: without backend.redis.tls no certificate is checked: want backend.redis.tls true" -}}
{{- end -}}
{{- if and (or $redis.ca.secret $redis.ca.configMap) (hasKey (default dict .Values.settings) "REDIS_TLS_CACERT") -}}
{{- fail "settings.REDIS_TLS_CACERT: backend.redis.ca is set: want one of the two" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rls.check.settings" -}}
{{- $settings := default dict .Values.settings -}}
{{- range $volume, $secret := fromYaml (include "rls.passwords" .) -}}
{{- if hasKey $settings $secret.setting -}}
{{- fail (printf "settings.%s: the chart mounts the Secret %s for it: want one of the two" $secret.setting $secret.name) -}}
{{- end -}}
{{- end -}}
{{- $known := splitList "\n" (trim (.Files.Get "files/settings.txt")) -}}
{{- range $name, $_ := $settings -}}
{{- if not (or (has $name $known) (regexMatch "^(OTEL_|DOG_STATSD_MOGRIFIER_)" $name) (has $name (list "GOGC" "GODEBUG" "GOMAXPROCS"))) -}}
{{- fail (printf "settings.%s: there is no such setting: want one of docs/settings.md; other variables go to extraEnv" $name) -}}
{{- end -}}
{{- end -}}
{{- /* Neither settings nor extraEnv may change these. */}}
{{- $mount := "the chart mounts the rules at /etc/rls/rules: want rules or existingRulesConfigMap" -}}
{{- $port := "the chart's Services, probes and policies have their ports" -}}
{{- $listener := "the chart's Services and probes need the listener" -}}
{{- $fixed := dict
  "BACKEND_TYPE" "want backend.type"
  "DRAIN_PERIOD" "want drainPeriodSeconds"
  "GRPC_PORT" $port
  "GRPC_UDS" $listener
  "PORT" $port
  "PROMETHEUS_ADDR" $port
  "PROMETHEUS_PATH" $port
  "RUNTIME_APPDIRECTORY" $mount
  "RUNTIME_ROOT" $mount
  "RUNTIME_SUBDIRECTORY" $mount
  "RUNTIME_WATCH_ROOT" $mount
  "USE_GRPC" $listener
  "USE_HTTP" $listener
  "USE_PROMETHEUS" "want metrics.enabled"
-}}
{{- /* Not settings: they come from a Secret through extraEnv, or from another value. */}}
{{- $secret := "everybody can read it in a ConfigMap: want extraEnv, from a Secret" -}}
{{- $elsewhere := dict
  "CACHE_KEY_HASH_SECRET" $secret
  "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" $secret
  "GOMEMLIMIT" "it is 95 % of resources.limits.memory"
  "MEMCACHE_HOST_PORT" "want backend.memcache.hosts"
  "OTEL_EXPORTER_OTLP_HEADERS" $secret
  "OTEL_EXPORTER_OTLP_TRACES_HEADERS" $secret
  "REDIS_AUTH" "want backend.redis.authSecret"
  "REDIS_PERSECOND_AUTH" $secret
  "REDIS_PERSECOND_SENTINEL_AUTH" $secret
  "REDIS_SENTINEL_AUTH" "want backend.redis.sentinelAuthSecret"
  "REDIS_TLS" "want backend.redis.tls"
  "REDIS_TYPE" "want backend.redis.type"
  "REDIS_URL" "want backend.redis.url"
-}}
{{- range $name, $why := merge $elsewhere $fixed -}}
{{- if hasKey $settings $name -}}
{{- fail (printf "settings.%s: %s" $name $why) -}}
{{- end -}}
{{- end -}}
{{- $hosts := pick $settings "GRPC_HOST" "HOST" -}}
{{- range $e := .Values.extraEnv -}}
{{- with get $fixed (toString $e.name) -}}
{{- fail (printf "extraEnv: %s: %s" $e.name .) -}}
{{- end -}}
{{- if and (has $e.name (list "GRPC_HOST" "HOST")) (hasKey $e "value") -}}
{{- $_ := set $hosts $e.name $e.value -}}
{{- end -}}
{{- end -}}
{{- range $name, $host := $hosts -}}
{{- if not (has $host (list "0.0.0.0" "::")) -}}
{{- fail (printf "%s=%v: Envoy and the probes come to the pod's own address: want 0.0.0.0, or :: with IPv6" $name $host) -}}
{{- end -}}
{{- end -}}
{{- if contains "@" (default "" $settings.REDIS_PERSECOND_URL) -}}
{{- fail "settings.REDIS_PERSECOND_URL: everybody can read a password in a ConfigMap: want it in extraEnv as REDIS_PERSECOND_AUTH, from a Secret" -}}
{{- end -}}
{{- end -}}
