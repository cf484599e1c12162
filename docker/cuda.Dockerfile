# A team behind OpenAI's chat API, or a training, on NVIDIA GPUs (docs/in_production.md):
#
#   docker build -f docker/cuda.Dockerfile -t motet-cuda .
#   docker run --rm --gpus all -p 127.0.0.1:8000:8000 -e TEAM_KEY -v ./teams/quickstart:/team:ro motet-cuda
#   docker run --rm --gpus all -v ./work:/work -w /work motet-cuda train gsm8k_debate
#
# The machine needs NVIDIA's driver and container toolkit. The libraries of CUDA come with torch.
FROM python:3.11-slim AS wheels
WORKDIR /source
COPY packages packages
COPY examples examples
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels \
    packages/codejudge packages/motet packages/motet-tasks packages/motet-serve

FROM python:3.11-slim
COPY constraints.txt /wheels/
COPY --from=wheels /wheels /wheels
# Triton, which torch brings, compiles its kernels with a C compiler.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir --constraint /wheels/constraints.txt torch \
    && pip install --no-cache-dir --constraint /wheels/constraints.txt /wheels/*.whl \
    && useradd --uid 1000 --create-home motet

USER motet
WORKDIR /home/motet
ENV PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["motet"]
CMD ["serve", "/team", "--host", "0.0.0.0", "--port", "8000", "--key-variable", "TEAM_KEY"]
