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
{{- if and $v.autoscaling.enabled (not (or $v.autoscaling.targetCPUUtilizationPercentage $v.autoscaling.metrics)) -}}
{{- fail "autoscaling.metrics: want at least one metric, or autoscaling.targetCPUUtilizationPercentage" -}}
{{- end -}}
{{- if not $v.metrics.enabled -}}
{{- range $what := list "serviceMonitor" "prometheusRule" -}}
{{- if (index $v.metrics $what).enabled -}}
{{- fail (printf "metrics.%s.enabled: want metrics.enabled, too" $what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "rls.check.rules" . -}}
{{- include "rls.check.alerts" . -}}
{{- if and (eq $v.backend.type "memcache") (eq (empty $v.backend.memcache.hosts) (not $settings.MEMCACHE_SRV)) -}}
{{- fail "backend.memcache.hosts: want the servers here, or \"\" and settings.MEMCACHE_SRV" -}}
{{- end -}}
{{- include "rls.check.redis" . -}}
{{- include "rls.check.admin" . -}}
{{- $labels := dict
  "commonLabels" $v.commonLabels "podLabels" $v.podLabels "deployment.labels" $v.deployment.labels "serviceAccount.labels" $v.serviceAccount.labels
  "service.labels" $v.service.labels "service.headless.labels" $v.service.headless.labels "metrics.serviceMonitor.labels" $v.metrics.serviceMonitor.labels
  "metrics.prometheusRule.labels" $v.metrics.prometheusRule.labels "metrics.dashboard.labels" $v.metrics.dashboard.labels -}}
{{- range $label, $_ := fromYaml (include "rls.selector" .) -}}
{{- range $value, $set := $labels -}}
{{- if hasKey (default dict $set) $label -}}
{{- fail (printf "%s.%s: selectors find the pods and Services by this label: want another name, or nameOverride" $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict $v.podAnnotations) "checksum/settings" -}}
{{- fail "podAnnotations.checksum/settings: by it changed settings replace the pods: want another name" -}}
{{- end -}}
{{- range $value := list "extraContainers" "extraInitContainers" -}}
{{- range $container := index $v $value -}}
{{- if has $container.name (list "rls" "check-rules") -}}
{{- fail (printf "%s: %s is a container of the chart: want another name" $value $container.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volumes := concat (list "redis-ca") (keys (fromYaml (include "rls.rules" .))) (keys (fromYaml (include "rls.passwords" .))) (keys (fromYaml (include "rls.certificates" .))) -}}
{{- range $volume := $v.extraVolumes -}}
{{- if has $volume.name $volumes -}}
{{- fail (printf "extraVolumes: %s is a volume of the chart: want another name" $volume.name) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.dnsPolicy "None") (not (dig "nameservers" nil (default dict $v.dnsConfig))) -}}
{{- fail "dnsConfig.nameservers: with dnsPolicy None want at least one" -}}
{{- end -}}
{{- include "rls.check.settings" . -}}
{{- end -}}

{{- define "rls.check.rules" -}}
{{- $v := .Values -}}
{{- $from := list -}}
{{- range $value := list "existingRulesConfigMap" "existingRulesConfigMaps" "rulesVolume" "rules" -}}
{{- if index $v $value -}}{{- $from = append $from $value -}}{{- end -}}
{{- end -}}
{{- if and $from (not (include "rls.readsFiles" .)) -}}
{{- fail (printf "%s: with settings.CONFIG_TYPE %s a management server sends the rules: want none" (join ", " $from) $v.settings.CONFIG_TYPE) -}}
{{- end -}}
{{- if and (gt (len $from) 1) (ne (join "," $from) "existingRulesConfigMaps,rules") -}}
{{- fail (printf "%s: %s is set: want one of them" (last $from) (join ", " (initial $from))) -}}
{{- end -}}
{{- if hasKey (default dict $v.rulesVolume) "name" -}}
{{- fail "rulesVolume.name: the chart names the volume: want its source, such as persistentVolumeClaim" -}}
{{- end -}}
{{- end -}}

{{- define "rls.check.alerts" -}}
{{- $rules := dict -}}
{{- range (first (.Files.Get "files/alerts.yaml" | fromYaml).groups).rules -}}
{{- $_ := set $rules .alert . -}}
{{- end -}}
{{- range $name, $change := default dict .Values.metrics.prometheusRule.alerts -}}
{{- if not (hasKey $rules $name) -}}
{{- fail (printf "metrics.prometheusRule.alerts.%s: there is no such alert: want one of %s" $name (keys $rules | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if and (hasKey $change "threshold") (ne (len (regexFindAll (include "rls.threshold" $) (get $rules $name).expr -1)) 1) -}}
{{- fail (printf "metrics.prometheusRule.alerts.%s.threshold: this alert has none: want for, severity or enabled" $name) -}}
{{- end -}}
{{- end -}}
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

{{- define "rls.check.admin" -}}
{{- $admin := .Values.admin -}}
{{- $tls := include "rls.adminTLS" . -}}
{{- if and $tls (not $admin.tokenSecret.name) -}}
{{- fail (printf "admin.tls.%s: without tokens there is no admin API: want admin.tokenSecret.name, too" (ternary "certManager" "secret" $admin.tls.certManager.enabled)) -}}
{{- end -}}
{{- if and $admin.tls.certManager.enabled $admin.tls.secret -}}
{{- fail "admin.tls.secret: admin.tls.certManager.enabled is true: want one of the two" -}}
{{- end -}}
{{- if and $admin.tls.certManager.enabled (not $admin.tls.certManager.issuerRef.name) -}}
{{- fail "admin.tls.certManager.issuerRef.name: want the Issuer or ClusterIssuer that signs the certificate" -}}
{{- end -}}
{{- if $admin.fleet.enabled -}}
{{- if not $admin.tokenSecret.name -}}
{{- fail "admin.fleet.enabled: pods ask each other with the token of who asks them: want admin.tokenSecret.name, too" -}}
{{- end -}}
{{- if not (or $tls $admin.fleet.insecure) -}}
{{- fail "admin.fleet.enabled: tokens cross the network: want admin.tls.secret or admin.tls.certManager, or admin.fleet.insecure true for clear text" -}}
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
{{- range $_, $secret := fromYaml (include "rls.certificates" .) -}}
{{- range $name := concat (keys $secret.settings) (ternary (list "ADMIN_FLEET_TLS_CACERT") list (hasKey $secret.settings "ADMIN_USE_TLS")) -}}
{{- $_ := set $fixed $name (printf "the chart mounts the Secret %s for it: want one of the two" $secret.name) -}}
{{- end -}}
{{- end -}}
{{- $open := list "GRPC_HOST" "HOST" -}}
{{- if .Values.admin.fleet.enabled -}}
{{- $open = append $open "ADMIN_HOST" -}}
{{- $_ := merge $fixed (dict "ADMIN_FLEET" "it is the headless Service with admin.fleet.enabled" "ADMIN_PORT" $port) -}}
{{- end -}}
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
{{- $hosts := dict -}}
{{- range $name := $open -}}
{{- if hasKey $settings $name -}}{{- $_ := set $hosts $name (get $settings $name) -}}{{- end -}}
{{- end -}}
{{- range $e := .Values.extraEnv -}}
{{- with get $fixed (toString $e.name) -}}
{{- fail (printf "extraEnv: %s: %s" $e.name .) -}}
{{- end -}}
{{- if and (has $e.name $open) (hasKey $e "value") -}}
{{- $_ := set $hosts $e.name $e.value -}}
{{- end -}}
{{- end -}}
{{- range $name, $host := $hosts -}}
{{- if not (has $host (list "0.0.0.0" "::")) -}}
{{- fail (printf "%s=%v: Envoy, the probes and other pods come to the pod's own address: want 0.0.0.0, or :: with IPv6" $name $host) -}}
{{- end -}}
{{- end -}}
{{- if contains "@" (default "" $settings.REDIS_PERSECOND_URL) -}}
{{- fail "settings.REDIS_PERSECOND_URL: everybody can read a password in a ConfigMap: want it in extraEnv as REDIS_PERSECOND_AUTH, from a Secret" -}}
{{- end -}}
{{- end -}}
