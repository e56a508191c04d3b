{{/* The pod, of a StatefulSet or of a Deployment. */}}
{{- define "pqbridge.pod" -}}
{{- include "pqbridge.check" . -}}
{{- $fdb := eq .Values.store "fdb" -}}
{{- $nats := .Values.nats -}}
metadata:
  labels:
    {{- include "pqbridge.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # Variables of a service called pq would begin with PQ_, as the settings do.
  enableServiceLinks: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $fdb .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    - {{- toYaml . | nindent 6 }}
      labelSelector:
        matchLabels: {{- include "pqbridge.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- if $fdb }}
  initContainers:
    # FoundationDB's client rewrites the file when coordinators change, and a ConfigMap cannot be written to.
    - name: cluster-file
      image: {{ .Values.fdb.copyImage }}
      command: [cp, /config/fdb.cluster, /cluster/fdb.cluster]
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 16Mi}
        limits: {memory: 64Mi}
      volumeMounts:
        - {name: cluster-config, mountPath: /config, readOnly: true}
        - {name: cluster, mountPath: /cluster}
  {{- end }}
  containers:
    - name: pqbridge
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-fdb" "" $fdb)) }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        - {name: PQ_STORE, value: {{ .Values.store }}}
        {{- if $fdb }}
        - {name: PQ_FDB_CLUSTER_FILE, value: /cluster/fdb.cluster}
        {{- else }}
        # Not the volume itself, which belongs to root: the folder and its files are for the service alone.
        - {name: PQ_DATA_DIR, value: /data/store}
        {{- end }}
        - {name: PQ_HTTP_ADDR, value: ":8422"}
        - {name: PQ_NATS_URL, value: {{ $nats.url | quote }}}
        {{- if $nats.credentials.secretName }}
        - {name: PQ_NATS_CREDS, value: /nats/login/file}
        {{- end }}
        {{- if $nats.nkey.secretName }}
        - {name: PQ_NATS_NKEY, value: /nats/login/file}
        {{- end }}
        {{- with $nats.user }}{{ if .secretName }}
        - name: PQ_NATS_USER
          valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .userKey }}}}
        - name: PQ_NATS_PASSWORD
          valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .passwordKey }}}}
        {{- end }}{{ end }}
        {{- with $nats.token }}{{ if .secretName }}
        - name: PQ_NATS_TOKEN
          valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .key }}}}
        {{- end }}{{ end }}
        {{- if $nats.tls.ca.secretName }}
        - {name: PQ_NATS_TLS_CA, value: /nats/ca/ca.crt}
        {{- end }}
        {{- if $nats.tls.client.secretName }}
        - {name: PQ_NATS_TLS_CERT, value: /nats/client/tls.crt}
        - {name: PQ_NATS_TLS_KEY, value: /nats/client/tls.key}
        {{- end }}
        {{- range $name, $value := .Values.config }}
        - {name: {{ $name }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 8422}
      startupProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- if $fdb }}
        - {name: cluster, mountPath: /cluster}
        {{- else }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- with include "pqbridge.nats.mounts" (dict "login" $nats "tls" $nats.tls) | trim }}{{ . | nindent 8 }}{{ end }}
  {{- with include "pqbridge.volumes" . | trim }}
  volumes: {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The volumes other than that of the embedded store. */}}
{{- define "pqbridge.volumes" -}}
{{- if eq .Values.store "fdb" }}
- name: cluster
  emptyDir: {sizeLimit: 1Mi}
- name: cluster-config
  configMap:
    name: {{ .Values.fdb.clusterFile.configMap }}
    items: [{key: {{ .Values.fdb.clusterFile.key }}, path: fdb.cluster}]
{{- end }}
{{- include "pqbridge.nats.volumes" (dict "login" .Values.nats "tls" .Values.nats.tls) }}
{{- end -}}

{{/* The files of a login to NATS and of TLS, and where they are mounted. */}}
{{- define "pqbridge.nats.volumes" -}}
{{- range list .login.credentials .login.nkey }}{{ if .secretName }}
- name: nats-login
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: file}]
{{- end }}{{ end }}
{{- with .tls.ca }}{{ if .secretName }}
- name: nats-ca
  secret:
    secretName: {{ .secretName }}
    items: [{key: {{ .key }}, path: ca.crt}]
{{- end }}{{ end }}
{{- with .tls.client.secretName }}
- name: nats-client
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "pqbridge.nats.mounts" -}}
{{- if or .login.credentials.secretName .login.nkey.secretName }}
- {name: nats-login, mountPath: /nats/login, readOnly: true}
{{- end }}
{{- if .tls.ca.secretName }}
- {name: nats-ca, mountPath: /nats/ca, readOnly: true}
{{- end }}
{{- if .tls.client.secretName }}
- {name: nats-client, mountPath: /nats/client, readOnly: true}
{{- end }}
{{- end -}}
