# A team behind OpenAI's chat API, on the CPU (docs/in_production.md):
#
#   docker build -f docker/cpu.Dockerfile -t motet-serve .
#   docker run --rm -p 127.0.0.1:8000:8000 -e TEAM_KEY -v ./teams/quickstart:/team:ro motet-serve
#
# /team is a folder that `motet export` wrote, and TEAM_KEY the key that clients send.
FROM python:3.11-slim AS wheels
WORKDIR /source
COPY packages packages
COPY examples examples
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels \
    packages/codejudge packages/motet packages/motet-tasks packages/motet-serve

FROM python:3.11-slim
# PyPI's torch for Linux has CUDA inside. TORCH_INDEX: an index with a build for the CPU alone,
# which is a tenth of the size.
ARG TORCH_INDEX=""
COPY constraints.txt /wheels/
COPY --from=wheels /wheels /wheels
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
        --constraint /wheels/constraints.txt torch \
    && pip install --no-cache-dir --constraint /wheels/constraints.txt /wheels/*.whl \
    && useradd --uid 1000 --create-home motet

USER motet
WORKDIR /home/motet
ENV PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# SIGTERM ends the server after the open requests, within --grace-seconds; `docker stop --time 40`.
ENTRYPOINT ["motet"]
CMD ["serve", "/team", "--host", "0.0.0.0", "--port", "8000", "--key-variable", "TEAM_KEY"]
