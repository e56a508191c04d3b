{{- define "pqbridge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters leave room for the suffixes that a StatefulSet adds. */}}
{{- define "pqbridge.fullname" -}}
{{- $name := include "pqbridge.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "pqbridge.selector" -}}
app.kubernetes.io/name: {{ include "pqbridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pqbridge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "pqbridge.selector" . }}
{{- end -}}

{{- define "pqbridge.metadata" -}}
name: {{ include "pqbridge.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "pqbridge.labels" . | nindent 2 }}
{{- end -}}

{{- define "pqbridge.image" -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-fdb" "" (eq .Values.store "fdb"))) -}}
{{- printf "%s:%s" .Values.image.repository $tag | quote -}}
{{- end -}}

{{/* At most 52 characters, the limit of a CronJob. */}}
{{- define "pqbridge.backup.name" -}}
{{- include "pqbridge.fullname" . | trunc 45 | trimSuffix "-" }}-backup
{{- end -}}

{{/* The volume with the backups. */}}
{{- define "pqbridge.backup.claim" -}}
{{- .Values.backup.existingClaim | default (include "pqbridge.backup.name" .) -}}
{{- end -}}

{{- define "pqbridge.backup.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: {{ include "pqbridge.name" . | trunc 56 | trimSuffix "-" }}-backup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The dashboard has a name of its own, so that the service of the bridges does not select its pods. */}}
{{- define "pqbridge.dashboard.selector" -}}
app.kubernetes.io/name: {{ include "pqbridge.name" . | trunc 53 | trimSuffix "-" }}-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pqbridge.dashboard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "pqbridge.dashboard.selector" . }}
{{- end -}}

{{- define "pqbridge.dashboard.metadata" -}}
name: {{ include "pqbridge.fullname" . }}-dashboard
namespace: {{ .Release.Namespace }}
labels:
  {{- include "pqbridge.dashboard.labels" . | nindent 2 }}
{{- end -}}

{{/* Checks a login to NATS, given with its name in the values. */}}
{{- define "pqbridge.checkLogin" -}}
{{- $logins := list -}}
{{- range $name := list "credentials" "nkey" "user" "token" -}}
{{- if (index $.login $name).secretName }}{{ $logins = append $logins (printf "%s.%s" $.name $name) }}{{ end -}}
{{- end -}}
{{- if gt (len $logins) 1 }}{{ fail (printf "%s are set: pqbridge logs in to NATS in one way only" (join " and " $logins)) }}{{ end -}}
{{- end -}}

{{/* What the schema of the values cannot say. */}}
{{- define "pqbridge.check" -}}
{{- include "pqbridge.checkLogin" (dict "login" .Values.nats "name" "nats") -}}
{{- include "pqbridge.checkLogin" (dict "login" .Values.jetstream "name" "jetstream") -}}
{{- if .Values.backup.enabled -}}
{{- if ne .Values.store "embedded" }}{{ fail "backup.enabled is for the embedded store: back up FoundationDB with its own tools" }}{{ end -}}
{{- if has "ReadWriteOncePod" .Values.embedded.persistence.accessModes }}{{ fail "backup.enabled: the CronJob's pod needs the service's volume too, so embedded.persistence.accessModes cannot be ReadWriteOncePod" }}{{ end -}}
{{- end -}}
{{- if and (eq .Values.store "fdb") (not .Values.fdb.clusterFile.configMap) -}}
{{- fail "store is fdb: set fdb.clusterFile.configMap to the ConfigMap with the cluster file" -}}
{{- end -}}
{{- range $name, $_ := .Values.config -}}
{{- if or (has $name (list "PQ_STORE" "PQ_HTTP_ADDR" "PQ_DATA_DIR" "PQ_FDB_CLUSTER_FILE")) (hasPrefix "PQ_NATS_" $name) (hasPrefix "PQ_JETSTREAM_LEAF_" $name) }}{{ fail (printf "config.%s: the chart sets this variable itself" $name) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "pqbridge.dashboard.check" -}}
{{- include "pqbridge.checkLogin" (dict "login" .Values.dashboard.nats "name" "dashboard.nats") -}}
{{- if eq (empty .Values.dashboard.token.secretName) (empty .Values.dashboard.trustProxyUser) -}}
{{- fail "dashboard: set either dashboard.token.secretName or dashboard.trustProxyUser, which say who gets in" -}}
{{- end -}}
{{- end -}}
